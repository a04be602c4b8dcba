"""The submitter for threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Optional, Tuple

from ._demux import Done
from ._gate import Gate
from ._loop import LoopOwner, LoopThread
from ._session import Connector, start
from ._submit import (
    JobBase,
    OnProgress,
    SubmitterBase,
    check_size,
    encode,
)
from .errors import Cancelled, ClosedError, Unsupported
from .wire import Message, check_name

__all__ = ["Pending", "Submitter"]


# Held for moments only, so one of each for all will do.
_making_replies = threading.Lock()
_closing = threading.Lock()


class Pending(JobBase, concurrent.futures.Future[Any]):
    """A job that was submitted and may not have ended.

    It is a concurrent.futures.Future: result, exception, wait, as_completed
    and add_done_callback do what they always do.  Its result is the answer's
    body, None for a detached job.  Its exception is a RefusedError, a
    JobError or a LostError.

    Callbacks run on the thread that reads the connection.  They must return
    soon and must not wait for anything of the same submitter: within them
    submit does not wait, and raises WindowFull or NotConnected instead.  Their
    own job no longer counts in the window.
    """

    def __init__(
        self,
        submitter: "Submitter",
        id: str,
        type: Optional[str],
        detach: bool,
        ack: bool,
        raw: bool,
        on_progress: Optional[OnProgress],
    ) -> None:
        JobBase.__init__(self, id, type, detach, ack, raw, on_progress)
        concurrent.futures.Future.__init__(self)
        self.set_running_or_notify_cancel()
        self._submitter = submitter
        self._reply: Optional[threading.Event] = None  # made when asked for

    def ack(self, timeout: Optional[float] = None) -> None:
        """Wait until the broker has taken the job.

        Raises the job's error if it was not taken, and
        concurrent.futures.TimeoutError if nothing is known after timeout
        seconds.  Of a job with ack=False nothing may be known until it ends.
        """
        with _making_replies:
            if self._reply is None:
                self._reply = threading.Event()
        # Who sets acked or ends the job looks for the event afterwards.
        if not self.acked and not self.done():
            if not self._reply.wait(timeout):
                raise concurrent.futures.TimeoutError()
        if not self.acked:
            error = self.exception()
            if error is not None:
                raise error

    def cancel(self) -> bool:
        """Ask the broker to cancel the job; False when it has ended.

        Does not wait: the job then ends with Cancelled or, if the answer was
        faster, with that.  Submitter.cancel waits for the broker's word.
        """
        if self.done():
            return False
        self._submitter._ask_cancel(self.id)
        return True

    def cancelled(self) -> bool:
        """Whether the job has ended by being cancelled."""
        return self.done() and isinstance(self.exception(), Cancelled)

    def _accepted(self) -> None:
        if self._reply is not None:
            self._reply.set()
        if self.detached:
            self.set_result(None)

    def _answered(self, message: Message) -> None:
        self.acked = True
        if self._reply is not None:
            self._reply.set()
        self.set_result(self._value(message, "body"))

    def _failed(self, error: Exception) -> None:
        self.set_exception(error)
        if self._reply is not None:
            self._reply.set()


class Submitter(SubmitterBase, LoopOwner):
    """Hands jobs to a broker over one connection that threads may share.

    Connecting begins at once, in the background; submit waits for it.
    Entering a with block waits for the first attempt and raises NotConnected,
    or the RefusedError of all brokers, when none can be had.  Leaving the
    block closes the submitter; what is pending then fails.  In a process that
    was forked it is closed from the beginning: make one there.

    addrs: brokers, "host:port" or "unix:/path" (default 127.0.0.1:9998).  One
    is used, and the next when that is lost or drains.
    window: jobs that may be outstanding, submitted and not ended.
    raw: results and progress are RawJSON, the bytes as the worker sent them.
    token, client (a name for the broker's log), heartbeat (seconds between
    the broker's pings, 0.1 … 3600): any of them makes connections begin with
    a hello.  A connection on which nothing came for three beats is given up.
    tls: encrypts.  server_hostname: what the certificate must name, by
    default the host of the address.
    dial_timeout: seconds for one attempt to connect, TLS and hello included.
    max_frame: bytes of the largest frame the broker takes, unless its hello
    says so.  Larger jobs are refused with SizeError before they are sent.
    backoff: seconds.  Waits before attempts to connect are random between 0
    and a limit that begins at the first number, doubles up to the second, and
    begins anew once a connection has lasted as long as the second.
    notify: called with each Notice about connections, by default they are
    logged under "gloom".  It must return soon.
    compat: for brokers that know the original protocol only.  Nothing newer
    is sent; cancel, ping and the newer options raise Unsupported.
    """

    def _start(self) -> None:
        self._gate = Gate(self._window)
        self._inbox: Deque[Tuple[Pending, bytes]] = deque()
        self._emptying = False
        self._closed = False
        self._connector = Connector(
            self._options,
            self._gate.leave,
            self._gate.change,
            self._gate.writable,
        )
        self._thread = LoopThread("gloom-submitter", self)
        self._thread.call(self._run)

    def _at_exit(self) -> None:
        self.close()

    def _ended(self) -> None:
        self._empty_inbox()  # what came in while it closed fails

    def _forked(self) -> None:
        self._gate = Gate(self._window)  # the old one may be locked for ever
        self._gate.close()
        self._closed = True

    def _run(self) -> None:
        self._task = start(self._connector.run())

    def connect(self, wait: Optional[float] = None) -> None:
        """Wait until connected: at most wait seconds, or with None until
        there has been an attempt at each address.  Then NotConnected is raised,
        and a RefusedError as soon as all brokers refuse for good; attempts go
        on in the background all the same."""
        self._may_wait()
        self._gate.connected(wait)

    def __enter__(self) -> "Submitter":
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        type: Optional[str],
        body: object = None,
        *,
        id: Optional[str] = None,
        priority: int = 0,
        delay: float = 0,
        timeout: float = 0,
        retries: Optional[int] = None,
        backoff: float = 0,
        expires: float = 0,
        detach: bool = False,
        ack: bool = True,
        on_progress: Optional[OnProgress] = None,
        raw: Optional[bool] = None,
        wait: Optional[float] = None,
    ) -> Pending:
        """Hand a job in; returns as soon as it is on its way.

        type: which workers serve it; None is the broker's default type.
        body: what JSON can express, or RawJSON, which goes out verbatim.
        id: 1 … 1024 bytes of UTF-8, unique in the broker while the job has
        not ended.  None: a unique one is made.
        priority: larger first, 64 bits; equals go by age.
        delay: seconds before which the job is not handed out.
        timeout: seconds one run may take; then that run has failed.
        retries: runs after the first one, 0 … 1000; None is the broker's.
        backoff: seconds before the first retry, doubled for each further one.
        expires: seconds from now after which the job is not started.
        Durations are rounded up to milliseconds, 0 is none, at most a year
        (backoff: a day).
        detach: the job outlives this submitter; it is done, with the result
        None, as soon as the broker has taken it.
        ack: False saves the broker's ack.
        on_progress: called with what the worker reports on its way, on the
        thread that reads the connection: it must return soon.
        raw: result and progress are RawJSON; None is the submitter's setting.
        wait: seconds to wait for room in the window and a connection, None
        as long as it takes.  Then WindowFull or NotConnected is raised.

        Raises TypeError and ValueError for what cannot be sent, SizeError,
        ClosedError, a RefusedError when all brokers refuse us for good, and
        Unsupported for any option but priority that a compat broker lacks.
        All else, a refusal by the broker included, is told by the Pending.
        """
        if id is None:
            id = self._new_id()
        frame = encode(
            self._options.compat,
            id,
            type,
            body,
            priority,
            delay,
            timeout,
            retries,
            backoff,
            expires,
            detach,
            ack,
            on_progress is not None,
        )
        pending = Pending(
            self,
            id,
            type,
            detach,
            ack,
            self._raw if raw is None else raw,
            on_progress,
        )
        inside = self._thread.inside
        self._gate.enter(len(frame), 0 if inside else wait)
        try:
            check_size(id, frame, self._connector.max_frame)
        except BaseException:
            self._gate.taken(len(frame))
            self._gate.leave()
            raise
        self._inbox.append((pending, frame))
        if inside:
            self._empty_inbox()
        elif not self._emptying:
            self._emptying = True
            try:
                self._thread.call(self._empty_inbox)
            except RuntimeError:  # closed meanwhile
                self._empty_inbox()
        return pending

    def _empty_inbox(self) -> None:
        self._emptying = False
        size = 0
        while self._inbox:
            pending, frame = self._inbox.popleft()
            size += len(frame)
            self._connector.submit(pending, frame)
        if size:
            self._gate.taken(size)

    def do(
        self,
        type: Optional[str],
        body: object = None,
        *,
        id: Optional[str] = None,
        priority: int = 0,
        delay: float = 0,
        timeout: float = 0,
        retries: Optional[int] = None,
        backoff: float = 0,
        expires: float = 0,
        ack: bool = True,
        on_progress: Optional[OnProgress] = None,
        raw: Optional[bool] = None,
        wait: Optional[float] = None,
    ) -> Any:
        """Submit a job and return its result; the arguments are submit's.

        When wait seconds have passed, or the thread is interrupted, the broker
        is asked to cancel the job; whether it was cancelled in time is not
        told.  Raises submit's errors, the job's, and
        concurrent.futures.TimeoutError.
        """
        deadline = None if wait is None else time.monotonic() + wait
        pending = self.submit(
            type,
            body,
            id=id,
            priority=priority,
            delay=delay,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            expires=expires,
            ack=ack,
            on_progress=on_progress,
            raw=raw,
            wait=wait,
        )
        try:
            if deadline is None:
                return pending.result()
            return pending.result(max(0.0, deadline - time.monotonic()))
        finally:
            if not pending.done() and not self._options.compat:
                with contextlib.suppress(ClosedError):
                    pending.cancel()

    def cancel(self, id: str, wait: Optional[float] = None) -> None:
        """Have the broker cancel a job: one of this submitter's, which then
        ends with Cancelled, or anybody's detached one.

        Raises UnknownID when the job had ended, its answer having won, or was
        never there; LostError, NotConnected, Unsupported, and
        concurrent.futures.TimeoutError after wait seconds.
        """
        self._ask(lambda done: self._ask_cancel(id, done), wait)

    def ping(self, wait: Optional[float] = None) -> None:
        """Ask the broker for a sign of life; errors as of cancel."""
        self._ask(lambda done: self._later(self._ping, done), wait)

    def _ask(
        self, ask: Callable[[Done], None], wait: Optional[float]
    ) -> None:
        if self._options.compat:
            raise Unsupported("not known to a compat broker")
        self._may_wait()
        reply: "concurrent.futures.Future[None]" = concurrent.futures.Future()

        def done(error: Optional[Exception]) -> None:
            if error is None:
                reply.set_result(None)
            else:
                reply.set_exception(error)

        ask(done)
        reply.result(wait)

    def _ask_cancel(self, id: str, done: Done = lambda _: None) -> None:
        if self._options.compat:
            raise Unsupported("cancel is not known to a compat broker")
        check_name("id", id)
        self._later(self._cancel, id, done)

    def _cancel(self, id: str, done: Done) -> None:
        self._empty_inbox()
        self._connector.cancel(id, done)

    def _ping(self, done: Done) -> None:
        self._empty_inbox()
        self._connector.ping(done)

    def _later(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._thread.call(function, *args)
        except RuntimeError:
            raise ClosedError("closed") from None

    def _may_wait(self) -> None:
        if self._thread.inside:
            raise RuntimeError("a callback must not wait for the broker")

    @property
    def outstanding(self) -> int:
        """Jobs submitted and not ended."""
        return self._gate.outstanding

    def drain(self, wait: Optional[float] = None) -> None:
        """Take no more jobs, wait for the outstanding ones to end, and close.

        After wait seconds it closes at once and raises
        concurrent.futures.TimeoutError.
        """
        self._may_wait()
        self._gate.close()
        try:
            if not self._gate.empty(wait):
                raise concurrent.futures.TimeoutError(
                    f"{self.outstanding} jobs outstanding after {wait} s"
                )
        finally:
            self.close()

    def close(self) -> None:
        """Close at once.  Jobs still pending fail with a LostError whose
        cause is a ClosedError.  May be called repeatedly."""
        self._gate.close()
        with _closing:
            if self._closed:
                return
            self._closed = True
        if self._thread.inside:
            self._ending = asyncio.ensure_future(self._shut_down())
            self._ending.add_done_callback(lambda _: self._thread.stop())
            return
        self._thread.run(self._shut_down())
        self._thread.stop()

    async def _shut_down(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        self._empty_inbox()
        await self._connector.close()
