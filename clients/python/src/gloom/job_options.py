"""The options of a job, and their encoding in a submit frame."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, TypedDict

from . import wire
from ._options import integer, millis
from ._trace import with_trace
from .body import RawJSON, encode_body
from .wire import check_name

OnProgress = Callable[[Any], None]


class JobOptions(TypedDict, total=False):
    """The options of a job.

    id: 1 … 1024 bytes of UTF-8, unique in the broker while the job has not
    ended.  None: the client makes a unique one.
    priority: a signed 64-bit integer; larger first, then the older job.
    delay: seconds before the job may be handed out.
    timeout: seconds that one run may take; after that the run has failed.
    retries: runs after the first one, 0 … 1000; None is the broker's default.
    backoff: seconds before the first retry, doubled for each further one; None is 1,
    unless retries is 0.  A job whose worker is lost runs again at once.
    expires: seconds from now after which the job is not started.
    Durations are rounded up to milliseconds; 0 is none; the maximum is a year
    (backoff: a day).
    detach: the job outlives this submitter; its Pending is done, with the result
    None, as soon as the broker has accepted the job.
    ack: False saves the broker's ack.
    on_progress: called with the progress that the worker reports, on the thread that
    reads the connection: it must return quickly.
    raw: result and progress are RawJSON; None is the submitter's setting.
    groups: 1 … 16 names, such as the tenant or the host.  The job obeys their
    limits, and in a fair type groups take turns.
    keep: seconds, a day at most, for which the broker keeps the job's outcome when
    the connection is lost.  When the submitter has reconnected to the same broker, it
    attaches to the job.  If the broker does not know the job, because its submit or
    its answer was lost with the connection, it fails with LostError.
    at_least_once: with keep, such a job is submitted again, and may run twice.
    age: the job is ordered as if it had been submitted this many seconds ago.
    headers: an object, 4 KiB at most, for workers that ask for headers.
    """

    id: str | None
    priority: int
    delay: float
    timeout: float
    retries: int | None
    backoff: float | None
    expires: float
    detach: bool
    ack: bool
    on_progress: OnProgress | None
    raw: bool | None
    groups: Sequence[str] | None
    keep: float
    at_least_once: bool
    age: float
    headers: Mapping[str, Any] | RawJSON | None


#: The backoff of a job that may be retried and sets none.
DEFAULT_BACKOFF_MS = 1000

# The key of each option on the wire, and the function that makes its value.  An option
# without a key is not sent.
_KEYS: dict[str, tuple[str, Callable[[str, Any], object]]] = {
    "id": ("", check_name),
    "priority": ("priority", lambda f, n: integer(f, n, -(2**63), 2**63 - 1)),
    "delay": ("delay_ms", millis),
    "timeout": ("timeout_ms", millis),
    "retries": ("retries", lambda f, n: integer(f, n, 0, wire.MAX_RETRIES)),
    "backoff": ("backoff_ms", lambda f, s: millis(f, s, wire.MAX_BACKOFF_MS)),
    "expires": ("expires_ms", millis),
    "detach": ("detach", lambda _, yes: bool(yes)),
    "ack": ("ack", lambda _, yes: None if yes else False),
    "on_progress": ("progress", lambda _, wanted: True),
    "raw": ("", lambda _, wanted: None),
    "groups": ("groups", wire.names),
    "keep": ("keep_ms", lambda f, s: millis(f, s, wire.MAX_KEEP_MS)),
    "at_least_once": ("", lambda _, wanted: None),
    "age": ("age_ms", millis),
    "headers": ("headers", lambda _, headers: headers),
}


# Keys that are sent even when they are 0, False or empty.
_EMPTY_TOO = "retries", "ack", "headers"


def fields_of(options: Mapping[str, Any]) -> dict[str, object]:
    """The keys and values of all options that are not None; TypeError or ValueError if
    one is invalid."""
    fields: dict[str, object] = {}
    for name, value in options.items():
        if name not in _KEYS:
            raise TypeError(f"submit has no option {name!r}")
        key, make = _KEYS[name]
        if value is not None:
            fields[key] = make(name, value)
    fields.pop("", None)
    return fields


def encode_submit(
    id: str, type: str | None, body: object, options: Mapping[str, Any]
) -> bytes:
    """A submit frame.  TypeError or ValueError for invalid arguments."""
    if type is not None:
        check_name("type", type)
    given = fields_of(options).items()
    fields = {k: v for k, v in given if v or k in _EMPTY_TOO}
    if options.get("backoff") is None and options.get("retries") != 0:
        fields["backoff_ms"] = DEFAULT_BACKOFF_MS
    headers = with_trace(options.get("headers"))
    fields["headers"] = None if headers is None else encode_body(headers)
    return wire.request("submit", id=id, type=type, body=encode_body(body), **fields)
