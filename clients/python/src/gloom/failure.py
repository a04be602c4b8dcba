"""Turns what a handler returns or raises into an outcome."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, Callable, NamedTuple

from ._options import millis
from ._trace import as_told_by
from .body import encode_body

if TYPE_CHECKING:
    from .job import Job

#: Most bytes of an error's text that are sent as the reason.
MAX_REASON = 4096


class Fatal(Exception):
    """Raised by a handler: the job fails at once, even if it has retries left.  The
    text is the reason that the submitter gets."""


class RetryAfter(Exception):
    """Raised by a handler: the run has failed.  If the job has retries left,
    the next run starts after this many seconds (0 … a year) instead of
    the job's backoff."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(seconds, reason)
        self.delay_ms = millis("seconds", seconds)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Release(Exception):
    """Raised by a handler: the job goes back to its place as if it had never been
    handed out, and first waits for this many seconds (0 … a year).  No retry is used;
    with 0 the same worker may get it again at once."""

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(seconds)
        self.delay_ms = millis("seconds", seconds) or None


class Outcome(NamedTuple):
    """The outcome of a run: the body of the answer, or why there is none."""

    body: bytes | None = None
    reason: str = ""
    retry: bool | None = None  # False: do not retry the job
    delay_ms: int | None = None
    release: bool = False
    trace: str = ""  # the traceback of an unexpected error


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
    """A reason, cut to MAX_REASON bytes."""
    data = text.encode("utf-8", "backslashreplace")
    more = "…" if len(data) > MAX_REASON else ""
    return data[:MAX_REASON].decode("utf-8", "ignore") + more
