"""What submitters and workers have in common to set up."""

from __future__ import annotations

import enum
import logging
import math
import ssl
from dataclasses import dataclass
from typing import Callable, Optional, Sequence, Tuple

from .wire import MAX_FRAME, MAX_MS

SUBMIT_ADDR = "127.0.0.1:9998"
WORKER_ADDR = "127.0.0.1:9999"
WINDOW = 1024
DIAL_TIMEOUT = 10.0
BACKOFF = (0.1, 15.0)
STOP_TIMEOUT = 30.0

#: A broker's frame may exceed max_frame by its envelope: a job that was just
#: small enough to be submitted is a little larger when it is handed out.
FRAME_SLACK = 16 * 1024

logger = logging.getLogger("gloom")


class Event(enum.Enum):
    """What a Notice is about."""

    #: A connection stands, hello included.
    CONNECTED = "connected"
    #: A worker's socket has joined its type.
    JOINED = "joined"
    #: A connection went.
    LOST = "lost"
    #: An attempt to connect or join failed.
    FAILED = "failed"
    #: A broker refuses a worker's hello or join for good; no further attempt
    #: is made on this socket.
    GIVEN_UP = "given up"


@dataclass(frozen=True)
class Notice:
    """Tells of something about connections that no caller waits for."""

    event: Event
    #: The broker.
    addr: str
    #: Why; None when CONNECTED or JOINED.
    error: Optional[BaseException] = None
    #: Seconds until the next attempt.
    wait: float = 0.0


Notify = Callable[[Notice], None]


def log_notice(notice: Notice) -> None:
    """What is done with notices by default: trouble is logged."""
    if notice.error is None:
        logger.debug("%s: %s", notice.addr, notice.event.value)
    elif notice.event is Event.GIVEN_UP:
        logger.error("%s: given up: %s", notice.addr, notice.error)
    else:
        logger.warning(
            "%s: %s: %s; next attempt in %.2f s",
            notice.addr,
            notice.event.value,
            notice.error,
            notice.wait,
        )


def split_addr(addr: str) -> Tuple[Optional[str], str, int]:
    """(path, "", 0) of "unix:/path", (None, host, port) of "host:port"."""
    if addr.startswith("unix:"):
        if len(addr) == 5:
            raise ValueError(f"address {addr!r}: path is empty")
        return addr[5:], "", 0
    host, colon, port = addr.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"address {addr!r}: IPv6 addresses want brackets")
    if not colon or not (port.isascii() and port.isdigit()):
        raise ValueError(f"address {addr!r}: want host:port or unix:/path")
    if int(port) > 65535:
        raise ValueError(f"address {addr!r}: port above 65535")
    return None, host, int(port)


def millis(field: str, seconds: float, limit: int = MAX_MS) -> int:
    """A duration in seconds as milliseconds, rounded up."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{field} {seconds!r}: not a number of seconds")
    if not 0 <= seconds <= limit / 1000:
        raise ValueError(
            f"{field} {seconds!r}: must be 0 … {limit // 1000} seconds"
        )
    # 0.1 s is 100 ms, though 0.1 * 1000 may be a hair above it.
    return math.ceil(round(seconds * 1000, 6))


@dataclass(frozen=True)
class Options:
    """The checked form of the keywords that all four classes take."""

    addrs: Sequence[str]
    token: Optional[str] = None
    client: Optional[str] = None
    heartbeat: float = 0.0
    tls: Optional[ssl.SSLContext] = None
    server_hostname: Optional[str] = None
    dial_timeout: float = DIAL_TIMEOUT
    max_frame: int = MAX_FRAME
    backoff: Tuple[float, float] = BACKOFF
    notify: Optional[Notify] = None
    compat: bool = False

    def __post_init__(self) -> None:
        if not self.addrs:
            raise ValueError("addrs: no broker address")
        for addr in self.addrs:
            split_addr(addr)
        if self.dial_timeout <= 0:
            raise ValueError(
                f"dial_timeout {self.dial_timeout}: must be above 0"
            )
        if not 1024 <= self.max_frame <= 2**31 - 1 - FRAME_SLACK:
            raise ValueError(
                f"max_frame {self.max_frame}: must be 1024 … "
                f"{2**31 - 1 - FRAME_SLACK}"
            )
        base, most = self.backoff
        if not 0 < base <= most:
            raise ValueError(
                f"backoff {self.backoff}: must be above 0 and rising"
            )
        if self.heartbeat and not 0.1 <= self.heartbeat <= 3600:
            raise ValueError(
                f"heartbeat {self.heartbeat}: must be 0.1 … 3600 seconds"
            )
        for field in ("token", "client"):
            text = getattr(self, field)
            if text is not None:
                text.encode("utf-8")
        if self.compat and self.wants_hello:
            raise ValueError(
                "token, client and heartbeat cannot be had from a compat broker"
            )

    @property
    def wants_hello(self) -> bool:
        """Whether connections begin with a hello."""
        return bool(self.token or self.client or self.heartbeat)

    def tell(self, notice: Notice) -> None:
        """Pass a notice on; a failing receiver is logged."""
        try:
            (self.notify or log_notice)(notice)
        except Exception:
            logger.exception("notify failed")
