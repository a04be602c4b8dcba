"""The settings that submitters and workers share, and the options of a job with their
encoding in a submit frame."""

import enum
import logging
import math
import os
import ssl
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Callable, Sequence, TypedDict

from . import wire
from ._trace import Headers, add_trace
from .body import encode_body
from .wire import MAX_RETRIES, Fields, check_name

#: How much a broker's frame may exceed max_frame: a job that was just small
#: enough to be submitted is a little larger when it is handed out.
FRAME_SLACK = 16 * 1024

logger = logging.getLogger("gloom")


class Event(enum.Enum):
    """What a Notice is about."""

    CONNECTED = "connected"  # a connection was made, including hello
    JOINED = "joined"  # a worker's socket has joined its type
    LOST = "lost"  # a connection was lost
    FAILED = "failed"  # an attempt to connect or join failed
    #: A broker refuses a worker permanently; this socket makes no further attempt.
    GIVEN_UP = "given up"


@dataclass(frozen=True)
class Notice:
    """Reports an event of a connection; no caller waits for the event."""

    event: Event
    addr: str  # the broker
    error: BaseException | None = None  # the reason; None if CONNECTED or JOINED
    wait: float = 0.0  # seconds until the next attempt


Notify = Callable[[Notice], None]


def log_notice(notice: Notice) -> None:
    """Log a notice: GIVEN_UP as an error, other errors as warnings. The default for notify."""
    told = notice.addr, notice.event.value, notice.error
    if notice.error is None:
        logger.debug("%s: %s", *told[:2])
    elif notice.event is Event.GIVEN_UP:
        logger.error("%s: %s: %s", *told)
    else:
        later = f"; next attempt in {notice.wait:.1f} s" if notice.wait >= 1 else ""
        logger.warning("%s: %s: %s%s", *told, later)


def split_addr(addr: str) -> tuple[str, str, int, bool]:
    """The parts of "host:port", "tls://host:port" or "unix:/path": path, host, port,
    and whether TLS is wanted."""
    if addr.startswith("unix:"):
        if len(addr) == 5:
            raise ValueError(f"address {addr!r}: path is empty")
        return addr[5:], "", 0, False
    tls = addr.startswith("tls://")
    host, colon, port = (addr[6:] if tls else addr).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"address {addr!r}: IPv6 addresses need brackets")
    if not colon or not (port.isascii() and port.isdigit()):
        want = "want host:port, tls://host:port or unix:/path"
        raise ValueError(f"address {addr!r}: {want}")
    if int(port) > 65535:
        raise ValueError(f"address {addr!r}: port above 65535")
    return "", host, int(port), tls


def local_socket(name: str) -> str:
    """The path of the local broker's socket "name.sock"; "" on Windows."""
    if not hasattr(os, "geteuid"):  # Windows
        return ""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(folder) or os.geteuid() == 0:
        folder = "/run"
    return os.path.join(folder, "gloom", f"{name}.sock")


def to_millis(field: str, seconds: float, limit: int = wire.MAX_MS) -> int:
    """A duration in seconds as milliseconds, rounded up."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{field} {seconds!r}: not a number of seconds")
    if not 0 <= seconds <= limit / 1000:
        raise ValueError(f"{field} {seconds!r}: must be 0 … {limit // 1000} seconds")
    # 0.1 s is 100 ms, even if the float is slightly above 0.1.
    return math.ceil(round(seconds * 1000, 6))


def check_integer(field: str, value: object, least: int, most: int) -> int:
    """Return value if it is an int in the range; else TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} {value!r}: not an int")
    if not least <= value <= most:
        raise ValueError(f"{field} {value}: must be {least} … {most}")
    return value


class Settings(TypedDict, total=False):
    """The keyword arguments about connections that all four classes accept.

    token, client (a name for the broker's log), heartbeat (seconds between the
    broker's pings, 0.1 … 3600): any of them makes connections begin with a hello.
    A connection that is silent for three heartbeats is given up.
    tls: the context for TLS.  server_hostname: the name that the certificate must
    have, by default the host of the address.
    dial_timeout: seconds for one attempt to connect, including TLS and hello (10).
    max_frame: bytes of the largest frame that the broker accepts, unless its hello
    gives the limit (16 MiB).  Larger ones raise SizeError before they are sent.
    backoff: seconds (0.1, 15).  Waits before attempts to connect are random between
    0 and a limit that starts at the first number, doubles up to the second, and is
    reset once a connection has lasted as long as the second.
    notify: called with each Notice about connections; by default they are logged
    under "gloom".  It must return quickly.
    """

    token: str | None
    client: str | None
    heartbeat: float
    tls: ssl.SSLContext | None
    server_hostname: str | None
    dial_timeout: float
    max_frame: int
    backoff: tuple[float, float]
    notify: Notify | None


@dataclass
class Options:
    """Validated settings. Without addresses the broker of this machine is used: its
    unix socket with the name local if that can be opened, else the port."""

    addrs: Sequence[str]
    local: str
    port: int
    token: str | None = None
    client: str | None = None
    heartbeat: float = 0.0
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    dial_timeout: float = 10.0
    max_frame: int = wire.MAX_FRAME
    backoff: tuple[float, float] = (0.1, 15.0)
    notify: Notify | None = None

    def __post_init__(self) -> None:
        self.local = "" if self.addrs or self.tls else local_socket(self.local)
        self.addrs = self.addrs or (f"127.0.0.1:{self.port}",)
        for addr in self.addrs:
            split_addr(addr)
        base, most = self.backoff
        largest = 2**31 - 1 - FRAME_SLACK
        beats = not self.heartbeat or 0.1 <= self.heartbeat <= 3600
        for field, fine, rule in (
            ("dial_timeout", self.dial_timeout > 0, "above 0"),
            ("max_frame", 1024 <= self.max_frame <= largest, f"1024 … {largest}"),
            ("backoff", 0 < base <= most, "above 0 and rising"),
            ("heartbeat", beats, "0.1 … 3600 seconds"),
        ):
            if not fine:
                raise ValueError(f"{field} {getattr(self, field)}: must be {rule}")
        for text in self.token, self.client:
            (text or "").encode("utf-8")

    def report(self, notice: Notice) -> None:
        """Pass a notice to notify, and log an exception that it raises."""
        try:
            (self.notify or log_notice)(notice)
        except Exception:
            logger.exception("notify failed")


OnProgress = Callable[[Any], None]
up_to_a_day = partial(to_millis, limit=wire.MAX_BACKOFF_MS)


# Each type is annotated with the key of the option on the wire, and with the function
# that makes its value.  An option without a key is not sent.
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

    id: Annotated[str | None, "", check_name]
    priority: Annotated[int, "priority", lambda f, n: check_integer(f, n, -(2**63), 2**63 - 1)]
    delay: Annotated[float, "delay_ms", to_millis]
    timeout: Annotated[float, "timeout_ms", to_millis]
    retries: Annotated[int | None, "retries", lambda f, n: check_integer(f, n, 0, MAX_RETRIES)]
    backoff: Annotated[float | None, "backoff_ms", up_to_a_day]
    expires: Annotated[float, "expires_ms", to_millis]
    detach: Annotated[bool, "detach", lambda _, yes: bool(yes)]
    ack: Annotated[bool, "ack", lambda _, yes: None if yes else False]
    on_progress: Annotated[OnProgress | None, "progress", lambda _, wanted: True]
    raw: Annotated[bool | None, "", lambda _, wanted: None]
    groups: Annotated[Sequence[str] | None, "groups", wire.names]
    keep: Annotated[float, "keep_ms", up_to_a_day]
    at_least_once: Annotated[bool, "", lambda _, wanted: None]
    age: Annotated[float, "age_ms", to_millis]
    headers: Annotated[Headers, "headers", lambda _, headers: headers]


#: The backoff of a job that may be retried and sets none.
DEFAULT_BACKOFF_MS = 1000

_KEYS = {name: hint.__metadata__ for name, hint in JobOptions.__annotations__.items()}
# Keys that are sent even when they are 0, False or empty.
_SENT_IF_EMPTY = "retries", "ack", "headers"


def fields_of(options: Fields) -> dict[str, object]:
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


def encode_submit(id: str, type: str | None, body: object, options: Fields) -> bytes:
    """A submit frame.  TypeError or ValueError for invalid arguments."""
    if type is not None:
        check_name("type", type)
    given = fields_of(options).items()
    fields = {k: v for k, v in given if v or k in _SENT_IF_EMPTY}
    if options.get("backoff") is None and options.get("retries") != 0:
        fields["backoff_ms"] = DEFAULT_BACKOFF_MS
    headers = add_trace(options.get("headers"))
    fields["headers"] = None if headers is None else encode_body(headers)
    return wire.request("submit", id=id, type=type, body=encode_body(body), **fields)
