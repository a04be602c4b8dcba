"""What becomes of a job whose handler raises."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, Callable, NamedTuple

from ._options import millis
from ._trace import as_told_by
from .body import encode_body

if TYPE_CHECKING:
    from .job import Job

#: Bytes of an error's text that are sent as a reason.
MAX_REASON = 4096


class Fatal(Exception):
    """Raised by a handler: the job fails at once, whatever retries it has
    left.  Its text is the reason that the submitter gets."""


class RetryAfter(Exception):
    """Raised by a handler: the run has failed, and the next one, if the job
    has retries left, comes after so many seconds (0 … a year) in place of the
    job's backoff."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(seconds, reason)
        self.delay_ms = millis("seconds", seconds)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Release(Exception):
    """Raised by a handler: the job goes back to its place as if it had never been
    handed out, and waits so many seconds first (0 … a year).  No retry is used; with
    0 the same worker may be handed it at once."""

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(seconds)
        self.delay_ms = millis("seconds", seconds) or None


class Outcome(NamedTuple):
    """What came of a run: the answer's body, or why there is none."""

    body: bytes | None = None
    reason: str = ""
    retry: bool | None = None  # False: it would only fail again
    delay_ms: int | None = None
    release: bool = False
    trace: str = ""  # of an error that the handler did not mean


def execute(handler: Callable[[Job], object], job: Job) -> Outcome:
    """Run a handler."""
    try:
        with as_told_by(job.headers):
            return answer(handler(job))
    except BaseException as err:
        return verdict(err)


def answer(value: object) -> Outcome:
    """The outcome of a run whose handler returned."""
    try:
        return Outcome(encode_body(value))
    except (TypeError, ValueError) as err:
        return Outcome(reason=f"encode answer: {err}", retry=False)


def verdict(error: BaseException) -> Outcome:
    """The outcome of a run whose handler raised."""
    if isinstance(error, Fatal):
        return Outcome(reason=str(error) or "fatal error", retry=False)
    if isinstance(error, RetryAfter):
        reason = error.reason or "failed, to be retried later"
        return Outcome(reason=reason, delay_ms=error.delay_ms)
    if isinstance(error, Release):
        return Outcome(reason="released", delay_ms=error.delay_ms, release=True)
    begin = error.__traceback__ and error.__traceback__.tb_next  # without our frame
    trace = "".join(traceback.format_exception(type(error), error, begin))
    name, said = type(error).__name__, ""
    with contextlib.suppress(Exception):
        said = str(error)
    return Outcome(reason=f"{name}: {said}" if said else name, trace=trace.rstrip())


def clip(text: str) -> str:
    """A reason as long as may be sent."""
    data = text.encode("utf-8", "backslashreplace")
    more = "…" if len(data) > MAX_REASON else ""
    return data[:MAX_REASON].decode("utf-8", "ignore") + more
