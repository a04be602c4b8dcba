"""The jobs that handlers receive, and what becomes of what they return or raise."""

import contextlib
import threading
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ._options import to_millis
from ._trace import traced_by
from .body import encode_body
from .errors import GloomError, fresh_copy

if TYPE_CHECKING:
    from ._socket import Socket

#: The maximum number of bytes of an error's text that are sent as the reason.
MAX_REASON = 4096


@dataclass(eq=False, repr=False)
class JobBase:
    """What the jobs of both kinds of handlers share."""

    id: str
    type: str
    body: Any  # the Python value, or RawJSON from a worker with raw
    #: The headers from the submitter; None if there are none or the worker did not
    #: ask for them.
    headers: dict[str, Any] | None
    #: Why nobody waits for this run any more: Cancelled, LostError, or
    #: ClosedError when stop has timed out.  None while somebody waits.
    cause: GloomError | None = field(default=None, init=False)
    _on_end: Callable[[GloomError], object] | None = field(default=None, init=False)
    _socket: "Socket" = field(init=False)  # the connection it came from

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for this run any more.  What the handler returns is then
        discarded, but until it returns it counts against the concurrency."""
        return self.cause is not None

    def _end(self, cause: GloomError) -> None:
        """Record that nobody waits for the run any more; the first cause counts."""
        if self.cause is None:
            self.cause = cause
            if self._on_end is not None:
                self._on_end(cause)

    def _encode_report(self, body: Any) -> bytes:
        data = encode_body(body)
        if self.cause is not None:
            raise fresh_copy(self.cause)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, type={self.type!r})"


@dataclass(eq=False, repr=False)
class Job(JobBase):
    """A job for a handler that runs in a thread or a process."""

    _report: Callable[[bytes], None] = field(init=False)  # sends progress
    _ended: threading.Event = field(default_factory=threading.Event, init=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep for timeout seconds, or until nobody waits for this run any more;
        returns unwanted."""
        return self._ended.wait(timeout and min(timeout, threading.TIMEOUT_MAX))

    def progress(self, body: Any) -> None:
        """Send progress to a submitter that asked for it.

        Does not wait for the broker, unless 64 reports are unanswered.  Raises cause
        if nobody waits for the run any more, TypeError or ValueError for values that
        JSON cannot express, and SizeError.
        """
        self._report(self._encode_report(body))

    def _end(self, cause: GloomError) -> None:
        super()._end(cause)
        self._ended.set()


class AsyncJob(JobBase):
    """A job for a handler that is a coroutine, whose task is cancelled when nobody
    waits for the run any more."""

    async def progress(self, body: Any) -> None:
        """Send progress to a submitter that asked for it; like Job.progress."""
        await self._socket.report(self, self._encode_report(body))


class Fatal(Exception):
    """Raised by a handler: the job fails at once, even if it has retries left.  The
    text is the reason that the submitter gets."""


class RetryAfter(Exception):
    """Raised by a handler: the run has failed.  If the job has retries left,
    the next run starts after this many seconds (0 … a year) instead of
    the job's backoff."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(seconds, reason)
        self.delay_ms = to_millis("seconds", seconds)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Release(Exception):
    """Raised by a handler: the job goes back to its place as if it had never been
    handed out, and first waits for this many seconds (0 … a year).  No retry is used;
    with 0 the same worker may get it again at once."""

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(seconds)
        self.delay_ms = to_millis("seconds", seconds) or None


class Outcome(NamedTuple):
    """The outcome of a run, as the worker's request says it."""

    verb: str  # respond, fail or release
    fields: dict[str, Any]
    trace: str = ""  # the traceback of an unexpected error


def failed(reason: str, trace: str = "", **fields: object) -> Outcome:
    """The outcome of a run that failed.  The reason is cut to MAX_REASON bytes."""
    data = reason.encode("utf-8", "backslashreplace")
    more = "…" if len(data) > MAX_REASON else ""
    cut = data[:MAX_REASON].decode("utf-8", "ignore") + more
    return Outcome("fail", {"reason": cut, **fields}, trace)


def execute(handler: Callable[[Job], object], job: Job) -> Outcome:
    """Run a handler."""
    try:
        with traced_by(job.headers):
            return answer(handler(job))
    except BaseException as err:
        return verdict(err)


def answer(value: object) -> Outcome:
    """The outcome of a run whose handler returned."""
    try:
        return Outcome("respond", {"body": encode_body(value)})
    except (TypeError, ValueError) as err:
        return failed(f"encode answer: {err}", retry=False)


def verdict(error: BaseException) -> Outcome:
    """The outcome of a run whose handler raised."""
    if isinstance(error, Fatal):
        return failed(str(error) or "fatal error", retry=False)
    if isinstance(error, RetryAfter):
        reason = error.reason or "failed, to be retried later"
        return failed(reason, delay_ms=error.delay_ms)
    if isinstance(error, Release):
        return Outcome("release", {"delay_ms": error.delay_ms})
    traceback_start = error.__traceback__ and error.__traceback__.tb_next  # without this frame
    trace = "".join(traceback.format_exception(type(error), error, traceback_start))
    name, message = type(error).__name__, ""
    with contextlib.suppress(Exception):
        message = str(error)
    return failed(f"{name}: {message}" if message else name, trace.rstrip())
