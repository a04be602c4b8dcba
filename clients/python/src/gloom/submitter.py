"""The submitters: AsyncSubmitter, and Submitter for threads, which is an AsyncSubmitter
in a loop of its own."""

import asyncio
import itertools
import secrets
import time
from typing import Any, Self, Sequence, TypeVar, Unpack

from . import wire
from ._connector import Connector
from ._loop import LoopThread, blocking, with_signature_of, within
from ._options import JobOptions, OnProgress, Options, Settings, encode_submit, fields_of
from .pending import AsyncPending, Pending, PendingJob
from .wire import Fields, check_name

P = TypeVar("P", bound=PendingJob)
_Made = tuple[Any, ...]  # the arguments of a pending job's constructor


class AsyncSubmitter:
    """Submits jobs to a broker over one connection: Submitter for asyncio.

    Settings, semantics and errors are the same as Submitter's.  An object belongs to
    the event loop in which it is first used, and begins to connect then.
    """

    def __init__(
        self, *addrs: str, window: int = 1024, raw: bool = False, **settings: Unpack[Settings]
    ) -> None:
        if window < 1:
            raise ValueError(f"window {window}: must be at least 1")
        self._raw = raw
        self._prefix = ""  # of ids; made when needed, which may be in a fork
        self._numbers = itertools.count(1)
        self._connector = Connector(Options(addrs, "submit", 9998, **settings), window)

    async def connect(self, wait: float | None = None) -> None:
        """Wait until connected: at most wait seconds, or with None until each address
        has been tried once.  Then NotConnected is raised.  A RefusedError is raised
        as soon as all brokers refuse permanently.  In any case attempts continue in
        the background."""
        await self._connector.wait(lambda: self._connector.is_ready(wait is not None), wait)

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def submit(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncPending:
        """Submit a job; returns as soon as it is on its way.

        type: the job's type; None is the broker's default type.
        body: a value that JSON can express, or RawJSON, which is sent verbatim.
        wait: seconds to wait for room in the window and a connection, None without
        a limit.  After that WindowFull or NotConnected is raised.
        options: see JobOptions.

        Raises TypeError and ValueError for invalid arguments, SizeError, ClosedError,
        and a RefusedError if all brokers refuse permanently.  All other errors,
        including a refusal by the broker, are those of the pending job.
        """
        made = self._encode(type, body, **options)
        return await self._send(AsyncPending(self._ask_cancel, *made), wait)

    async def attach(
        self,
        id: str,
        *,
        on_progress: OnProgress | None = None,
        raw: bool | None = None,
        wait: float | None = None,
    ) -> AsyncPending:
        """Attach to a job that was submitted with keep, here or elsewhere, to get its
        progress and outcome; a kept outcome comes at once.

        The previous submitter gets TakenOver.  The pending job's ack returns once
        attached; it fails with UnknownID if the job no longer exists or is not kept.
        """
        made = self._encode_attach(id, on_progress, raw)
        return await self._send(AsyncPending(self._ask_cancel, *made), wait)

    async def _send(self, pending: P, wait: float | None) -> P:
        if not self._connector.enter(pending):
            await self._connector.wait(lambda: self._connector.enter(pending), wait)
        self._connector.send()
        return pending

    async def do(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Submit a job and return its result; takes the arguments of submit.

        After wait seconds, or if the thread is interrupted or the task cancelled, asks
        the broker to cancel the job, without waiting for the reply.  Raises the errors
        of submit and of the job, and TimeoutError.
        """
        until = None if wait is None else time.monotonic() + wait
        pending = await self.submit(type, body, wait=wait, **options)
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            return await within(asyncio.shield(pending._end), left)
        except TimeoutError:
            raise TimeoutError(f"timed out after {wait:g} s") from None
        finally:
            pending.cancel()

    async def cancel(self, id: str, wait: float | None = None) -> None:
        """Have the broker cancel a job: one of this submitter's, which then ends with
        Cancelled, or any detached one.

        Raises UnknownID if the job has ended or never existed, LostError,
        NotConnected, and TimeoutError after wait seconds.
        """
        await self._ask("cancel", check_name("id", id), {}, wait)

    async def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        groups: Sequence[str] | None = None,
        delay: float | None = None,
        wait: float | None = None,
    ) -> None:
        """Change a waiting job: its priority, its groups ([] removes all), or its delay
        from now in seconds (0 makes it ready).  Arguments that are None change
        nothing.

        It may be one of this submitter's, a detached one, or a kept one whose
        connection is gone.  Raises InvalidState if it is running, and the errors of
        cancel.
        """
        what = fields_of({"priority": priority, "groups": groups, "delay": delay})
        await self._ask("change", check_name("id", id), what, wait)

    async def ping(self, wait: float | None = None) -> None:
        """Check that the broker answers; the errors are those of cancel."""
        await self._ask("ping", None, {}, wait)

    @property
    def outstanding(self) -> int:
        """The number of jobs submitted and not ended."""
        return self._connector.outstanding

    async def drain(self, wait: float | None = None) -> None:
        """Like Submitter.drain."""
        self._connector.stop_admitting()
        try:
            await self._connector.wait(lambda: not self.outstanding, wait)
        finally:
            await self.close()

    async def leave(self, wait: float = 2.0) -> None:
        """Like Submitter.leave."""
        await self._connector.close(wait)

    async def close(self) -> None:
        """Like Submitter.close."""
        await self._connector.close()

    # Shared with Submitter.

    def _encode(self, type: str | None, body: object = None, **options: Any) -> _Made:
        if (id := options.get("id")) is None:
            self._prefix = self._prefix or secrets.token_hex(6) + "-"
            id = f"{self._prefix}{next(self._numbers)}"
        frame = encode_submit(id, type, body, options)
        return id, type, frame, options, self._raw

    def _encode_attach(
        self, id: str, on_progress: OnProgress | None = None, raw: bool | None = None
    ) -> _Made:
        frame = wire.attach(check_name("id", id), on_progress)
        options = {"on_progress": on_progress, "raw": raw, "keep": True}
        return id, None, frame, options, self._raw

    def _ask_cancel(self, id: str) -> None:
        """Ask the broker to cancel a job, and ignore the reply."""
        self._connector.ask("cancel", id, {}, lambda _: None)

    async def _ask(
        self, verb: str, id: str | None, fields: Fields, wait: float | None
    ) -> None:
        self._connector.begin()
        reply: asyncio.Future[Exception | None] = asyncio.Future()

        def done(error: Exception | None) -> None:
            if not reply.done():  # else the waiting task was cancelled
                reply.set_result(error)

        self._connector.ask(verb, id, fields, done)
        if (error := await within(reply, wait)) is not None:
            raise error


class Submitter:
    """Submits jobs to a broker over one connection that threads can share.

    Connecting begins at once, in the background; submit waits for it.
    Entering a with block waits for the first attempt and raises NotConnected,
    or a RefusedError if all brokers refuse.  The end of the block calls leave; jobs
    that are still pending fail.  In a forked process the submitter counts as
    closed: make a new one there.

    addrs: brokers, "host:port", "tls://host:port" or "unix:/path".  One is used,
    and the next when it is lost or drains.  Default: the broker of this machine,
    by its socket in $XDG_RUNTIME_DIR/gloom or /run/gloom, else 127.0.0.1:9998.
    window: the maximum number of jobs that may be outstanding, submitted and not ended.
    raw: results and progress are RawJSON, the bytes as the worker sent them.
    settings: see Settings.
    """

    @with_signature_of(AsyncSubmitter.__init__)
    def __init__(self, *addrs: str, **settings: Any) -> None:
        self._core = AsyncSubmitter(*addrs, **settings)
        self._asked: object = None  # the last inbox that the loop was asked to send
        self._thread = LoopThread("gloom-submitter", self._core.close)
        self._thread.start()
        self._thread.call(self._core._connector.begin)

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    connect = blocking(AsyncSubmitter.connect)

    @with_signature_of(AsyncSubmitter.submit)
    def submit(self, *args: Any, wait: float | None = None, **options: Any) -> Pending:
        return self._send(self._core._encode(*args, **options), wait)

    @with_signature_of(AsyncSubmitter.attach)
    def attach(self, id: str, *, wait: float | None = None, **options: Any) -> Pending:
        return self._send(self._core._encode_attach(id, **options), wait)

    def _send(self, made: _Made, wait: float | None) -> Pending:
        pending = Pending(self._ask_cancel, *made)
        thread, connector = self._thread, self._core._connector
        thread.check_here()
        if not connector.enter(pending):
            if thread.in_loop_thread:  # a callback cannot wait
                connector.give_up(0)
            thread.run(lambda: self._core._send(pending, wait))
        elif thread.in_loop_thread:
            connector.send()
        elif self._asked is not (inbox := connector.inbox):
            try:
                self._asked = inbox
                thread.call(connector.send)  # if closed meanwhile, the job fails
            except BaseException:  # such as KeyboardInterrupt
                self._asked = None
                thread.call(connector.send)  # other threads may rely on it
                raise
        return pending

    @with_signature_of(AsyncSubmitter.do)
    def do(self, *args: Any, wait: float | None = None, **options: Any) -> Any:
        self._thread.check_outside()
        until = None if wait is None else time.monotonic() + wait
        pending = self.submit(*args, wait=wait, **options)
        try:  # not as a task of the loop: when that ends, it would hide the job's LostError
            left = None if until is None else max(0.0, until - time.monotonic())
            return pending.result(left)
        except TimeoutError:
            raise TimeoutError(f"timed out after {wait:g} s") from None
        finally:
            pending.cancel()

    cancel = blocking(AsyncSubmitter.cancel)
    change = blocking(AsyncSubmitter.change)
    ping = blocking(AsyncSubmitter.ping)

    def _ask_cancel(self, id: str) -> None:
        self._thread.check_here()
        self._thread.call(self._core._ask_cancel, id)

    @property
    def outstanding(self) -> int:
        """The number of jobs submitted and not ended."""
        return self._core.outstanding

    def drain(self, wait: float | None = None) -> None:
        """Take no more jobs, wait for the outstanding ones to end, and close.
        After wait seconds it closes at once and raises TimeoutError."""
        self._thread.check_outside()
        try:
            self._thread.run(lambda: self._core.drain(wait))
        finally:
            self.close()

    def leave(self, wait: float = 2.0) -> None:
        """Read what the broker has sent, for at most wait seconds, and close. Without a
        pending kept job, close at once.

        The broker forgets the outcome of a kept job once it has sent it; leave delivers
        such outcomes. The other pending jobs fail as with close, and the broker still
        keeps the outcomes of those that are kept.
        """
        if self._thread.in_loop_thread:  # a callback cannot wait
            self.close()
        else:
            self._thread.run_last(lambda: self._core.leave(wait))

    def close(self) -> None:
        """Close at once.  Jobs still pending fail with a LostError whose
        cause is a ClosedError; outcomes of kept jobs that the broker has sent, but that
        have not been read, are lost (leave reads them). May be called repeatedly."""
        self._thread.stop()
