"""Submitted jobs, as the caller sees them."""

import asyncio
import concurrent.futures
from dataclasses import InitVar, dataclass, field
from typing import Any, Callable, Generator, Self

from ._options import OnProgress, logger
from .errors import Cancelled
from .wire import Fields, Message


@dataclass(eq=False, repr=False)
class PendingJob:
    """What the two kinds of pending jobs share.

    The connection calls _answered or _failed when the job ends.  _end completes
    then.  _reply, if a caller has asked for it, completes with the reply to the submit.
    """

    _cancel: Callable[[str], None]
    id: str
    type: str | None  # None for the broker's default one
    frame: bytes  # while it may have to be sent
    options: InitVar[Fields]
    _raw: bool
    sent: bool = field(default=False, init=False)  # part may have left this process
    acked: bool = field(default=False, init=False)  # the broker has accepted it
    replied: bool = field(default=False, init=False)  # to its last submit
    _end: Any = field(init=False)
    _reply: Any = field(default=None, init=False)

    def __post_init__(self, options: Fields) -> None:
        #: The broker sends nothing about the job once it has accepted it.
        self.detached = bool(options.get("detach"))
        #: The job outlives its connection and can be attached to.
        self.kept = bool(options.get("keep"))
        #: The job may run twice rather than be lost.
        self.resubmit = self.kept and bool(options.get("at_least_once"))
        self.silent = not options.get("ack", True)  # sent with "ack":false
        self.on_progress: OnProgress | None = options.get("on_progress")
        own_raw = options.get("raw")
        self._raw = self._raw if own_raw is None else own_raw

    def cancel(self) -> bool:
        """Ask the broker to cancel the job; False if it has ended.

        Does not wait: the job then ends with Cancelled or, if the answer was
        faster, with the answer.  The submitter's cancel waits for the broker's reply.
        """
        if self._end.done():
            return False
        self._cancel(self.id)
        return True

    def cancelled(self) -> bool:
        """Whether the job has ended by being cancelled."""
        return self._end.done() and isinstance(self._end.exception(), Cancelled)

    def _accepted(self) -> None:
        """The broker has accepted the job; a detached job ends here."""
        self._replied()
        if self.detached:
            self._end.set_result(None)

    def _progressed(self, message: Message) -> None:
        try:
            if self.on_progress is not None:
                self.on_progress(self._value(message, "progress"))
        except Exception:
            logger.exception("on_progress of job %r failed", self.id)

    def _answered(self, message: Message) -> None:
        self._replied()
        self._end.set_result(self._value(message, "body"))

    def _failed(self, error: Exception) -> None:
        self._end.set_exception(error)
        self._end.exception()  # marks it as retrieved
        self._replied()

    def _replied(self) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(None)

    def _check_taken(self) -> None:
        if not self.acked and (error := self._end.exception()) is not None:
            raise error

    def _value(self, message: Message, key: str) -> Any:
        return message.raw(key) if self._raw else message.get(key)


class AsyncPending(PendingJob):
    """A job that was submitted and may not have ended.

    Awaiting it returns the answer's body (None for a detached job) or raises a
    RefusedError, a JobError or a LostError.  It may be awaited repeatedly and
    by several tasks; cancelling such a task does not cancel the job.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self._end).__await__()

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._end.done()

    def exception(self) -> BaseException | None:
        """The error that it ended with; InvalidStateError before it has ended."""
        return self._end.exception()

    def result(self) -> Any:
        """Return the body or raise the error; InvalidStateError before the end."""
        return self._end.result()

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call callback with this object soon after the end."""
        self._end.add_done_callback(lambda _: callback(self))

    async def ack(self) -> None:
        """Wait until the broker has accepted the job; raises the job's error if it did
        not.  For a job with ack=False this may last until the job ends."""
        if not self.acked and not self.done():
            if self._reply is None:
                self._reply = self._end.get_loop().create_future()
            await asyncio.shield(self._reply)
        self._check_taken()


class Pending(PendingJob, concurrent.futures.Future[Any]):
    """A job that was submitted and may not have ended.

    It is a concurrent.futures.Future: result, exception, wait, as_completed
    and add_done_callback work as usual.  Its result is the answer's body (None for a
    detached job).  Its exception is a RefusedError, a JobError or a LostError.

    Callbacks run on the thread that reads the connection.  They must return
    quickly and must not wait for the same submitter: within them submit does not
    wait, and raises WindowFull or NotConnected instead.  The job that has ended no
    longer counts against the window.
    """

    def __init__(self, *args: Any) -> None:
        concurrent.futures.Future.__init__(self)
        PendingJob.__init__(self, *args)
        self._end = self
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Return the body or raise the error; TimeoutError if the job has not ended."""
        try:
            return super().result(timeout)
        except TimeoutError as error:
            if not self.done():
                error.args = (f"no answer to job {self.id} after {timeout:g} s",)
            raise

    def ack(self, timeout: float | None = None) -> None:
        """Wait until the broker has accepted the job; raises the job's error if it did
        not, and TimeoutError after timeout seconds.  For a job with ack=False this may
        last until the job ends."""
        # setdefault is atomic: several threads may ask.
        self.__dict__.setdefault("_reply", concurrent.futures.Future())
        # The thread that sets acked or ends the job checks _reply afterwards.
        if not self.acked and not self.done():
            self._reply.result(timeout)
        self._check_taken()
