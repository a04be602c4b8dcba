"""What a submitter may say of a job, and how that is said on the wire."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, TypedDict

from . import wire
from ._options import integer, millis
from ._trace import with_trace
from .body import RawJSON, encode_body
from .errors import Unsupported
from .wire import check_name

OnProgress = Callable[[Any], None]


class JobOptions(TypedDict, total=False):
    """What a job can ask for.

    id: 1 … 1024 bytes of UTF-8, unique in the broker while the job has not
    ended.  None: a unique one is made.
    priority: larger first, 64 bits; equals go by age.
    delay: seconds before which the job is not handed out.
    timeout: seconds one run may take; then that run has failed.
    retries: runs after the first one, 0 … 1000; None is the broker's.
    backoff: seconds before the first retry, doubled for each further one; not said, or
    None: 1, unless retries is 0.  A job whose worker is lost runs again at once.
    expires: seconds from now after which the job is not started.
    Durations are rounded up to milliseconds, 0 is none, at most a year
    (backoff: a day).
    detach: the job outlives this submitter; it is done, with the result None, as
    soon as the broker has taken it.
    ack: False saves the broker's ack.
    on_progress: called with what the worker reports on its way, on the thread
    that reads the connection: it must return soon.
    raw: result and progress are RawJSON; None is the submitter's setting.
    groups: 1 … 16 names, such as the tenant or the host, whose limits the job obeys
    and among which a fair type takes turns.
    keep: seconds, a day at most, for which the job's outcome waits when its
    connection is lost.  When the same broker is reached again, the submitter
    attaches to the job and goes on.  A job that the broker does not know then, as its
    submit or its answer went with the connection, fails with LostError.
    at_least_once: with keep, such a job is submitted again, and may run twice.
    age: seconds.  The job stands among its equals as if submitted so long ago.
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


#: The backoff of a job that may be retried and says none.
DEFAULT_BACKOFF_MS = 1000

# The wire's key of each option, and what makes its value; without a key it is for
# us alone.
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


# What is sent of a submit even when it is 0, False or empty.
_EMPTY_TOO = "retries", "ack", "headers"


def fields_of(options: Mapping[str, Any]) -> dict[str, object]:
    """What a frame says of options that are not None; TypeError or ValueError for what
    cannot be said."""
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
    compat: bool, id: str, type: str | None, body: object, options: Mapping[str, Any]
) -> bytes:
    """A submit frame.  TypeError or ValueError for what cannot be sent, Unsupported
    for what a compat broker would not understand."""
    if type is not None:
        check_name("type", type)
    given = fields_of(options).items()
    fields = {k: v for k, v in given if v or k in _EMPTY_TOO and v is not None}
    newer = sorted(fields.keys() - {"priority"})
    if compat and newer:
        raise Unsupported(f"not known to a compat broker: {', '.join(newer)}")
    if not compat:
        if options.get("backoff") is None and options.get("retries") != 0:
            fields["backoff_ms"] = DEFAULT_BACKOFF_MS
        headers = with_trace(options.get("headers"))
        fields["headers"] = None if headers is None else encode_body(headers)
    return wire.request("submit", id=id, type=type, body=encode_body(body), **fields)
