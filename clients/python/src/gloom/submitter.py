"""The submitter for threads: an AsyncSubmitter in a loop of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from typing import TYPE_CHECKING, Any

from ._loop import LoopThread, blocking
from ._options import Settings
from .async_submitter import AsyncSubmitter
from .errors import ClosedError
from .job_options import JobOptions, OnProgress
from .pending import Pending

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    window: the most jobs that may be outstanding, submitted and not ended.
    raw: results and progress are RawJSON, the bytes as the worker sent them.
    settings: see Settings.

    TimeoutError is concurrent.futures.TimeoutError.
    """

    def __init__(
        self,
        *addrs: str,
        window: int = 1024,
        raw: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        self._core = AsyncSubmitter(*addrs, window=window, raw=raw, **settings)
        self._sending = False  # whether the loop has been asked to send admitted jobs
        self._thread = LoopThread("gloom-submitter", self._core.close)
        self._thread.call(self._core._connector.begin)

    def __enter__(self) -> Submitter:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    connect = blocking(AsyncSubmitter.connect)

    def submit(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Pending:
        """Submit a job; returns as soon as it is on its way.

        type: the job's type; None is the broker's default type.
        body: a value that JSON can express, or RawJSON, which is sent verbatim.
        wait: seconds to wait for room in the window and a connection, None without
        a limit.  After that WindowFull or NotConnected is raised.
        options: see JobOptions.

        Raises TypeError and ValueError for invalid arguments, SizeError, ClosedError,
        and a RefusedError if all brokers refuse permanently.  All other errors,
        including a refusal by the broker, are raised by the Pending.
        """
        made = self._core._encode(type, body, options)
        return self._send(Pending(self._ask_cancel, *made), wait)

    def attach(
        self,
        id: str,
        *,
        on_progress: OnProgress | None = None,
        raw: bool | None = None,
        wait: float | None = None,
    ) -> Pending:
        """Attach to a job that was submitted with keep, here or elsewhere, to get its
        progress and outcome; a kept outcome comes at once.

        The previous submitter gets TakenOver.  The Pending's ack returns once
        attached; it fails with UnknownID if the job no longer exists or is not kept.
        """
        made = self._core._encode_attach(id, on_progress, raw)
        return self._send(Pending(self._ask_cancel, *made), wait)

    def _send(self, pending: Pending, wait: float | None) -> Pending:
        thread, core = self._thread, self._core
        thread.check_here()
        if not core._gate.enter(pending):
            if thread.inside:  # a callback cannot wait
                core._gate.give_up(0)
            thread.run(lambda: core._send(pending, wait))
        elif thread.inside:
            self._send_all()
        elif not self._sending:
            self._sending = True
            try:
                thread.call(self._send_all)
            except ClosedError:  # closed meanwhile: the jobs fail
                self.close()
                self._send_all()
        return pending

    def _send_all(self) -> None:
        self._sending = False
        self._core._connector.send()

    def do(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Submit a job and return its result; takes the arguments of submit.

        After wait seconds, or if the thread is interrupted, asks the broker to cancel
        the job, without waiting for the reply.  Raises the errors of submit and of
        the job, and TimeoutError.
        """
        until = None if wait is None else time.monotonic() + wait
        pending = self.submit(type, body, wait=wait, **options)
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            return pending.result(left)
        except concurrent.futures.TimeoutError:
            raise concurrent.futures.TimeoutError(f"timed out after {wait:g} s") from None
        finally:
            with contextlib.suppress(ClosedError):
                pending.cancel()

    cancel = blocking(AsyncSubmitter.cancel)
    change = blocking(AsyncSubmitter.change)
    ping = blocking(AsyncSubmitter.ping)

    def _ask_cancel(self, id: str) -> None:
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
        try:
            if not self._thread.inside:  # a callback cannot wait
                with contextlib.suppress(ClosedError):
                    self._thread.run(lambda: self._core.leave(wait))
        finally:
            self.close()

    def close(self) -> None:
        """Close at once.  Jobs still pending fail with a LostError whose
        cause is a ClosedError; outcomes of kept jobs that the broker has sent, but that
        have not been read, are lost (leave reads them). May be called repeatedly."""
        self._thread.stop()
