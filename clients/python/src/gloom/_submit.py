"""What the two submitters share: their settings, and jobs into frames."""

from __future__ import annotations

import itertools
import secrets
import ssl
from typing import Any, Callable, Dict, Optional, Tuple

from . import wire
from ._demux import PendingJob
from ._options import (
    BACKOFF,
    DIAL_TIMEOUT,
    SUBMIT_ADDR,
    WINDOW,
    Notify,
    Options,
    logger,
    millis,
)
from .body import encode_body
from .errors import SizeError, Unsupported
from .wire import Message

OnProgress = Callable[[Any], None]


class SubmitterBase:
    """The settings, which Submitter describes."""

    def __init__(
        self,
        *addrs: str,
        window: int = WINDOW,
        raw: bool = False,
        token: Optional[str] = None,
        client: Optional[str] = None,
        heartbeat: float = 0.0,
        tls: Optional[ssl.SSLContext] = None,
        server_hostname: Optional[str] = None,
        dial_timeout: float = DIAL_TIMEOUT,
        max_frame: int = wire.MAX_FRAME,
        backoff: Tuple[float, float] = BACKOFF,
        notify: Optional[Notify] = None,
        compat: bool = False,
    ) -> None:
        if window < 1:
            raise ValueError(f"window {window}: must be at least 1")
        self._options = Options(
            addrs=addrs or (SUBMIT_ADDR,),
            token=token,
            client=client,
            heartbeat=heartbeat,
            tls=tls,
            server_hostname=server_hostname,
            dial_timeout=dial_timeout,
            max_frame=max_frame,
            backoff=backoff,
            notify=notify,
            compat=compat,
        )
        self._window = window
        self._raw = raw
        self._prefix = secrets.token_hex(6) + "-"
        self._numbers = itertools.count(1)
        self._start()

    def _start(self) -> None:
        raise NotImplementedError

    def _new_id(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"


def encode(
    compat: bool,
    id: str,
    type: Optional[str],
    body: object,
    priority: int,
    delay: float,
    timeout: float,
    retries: Optional[int],
    backoff: float,
    expires: float,
    detach: bool,
    ack: bool,
    progress: bool,
) -> bytes:
    """A submit frame.  TypeError or ValueError for what cannot be sent,
    Unsupported for what a compat broker would not understand."""
    wire.check_name("id", id)
    if type is not None:
        wire.check_name("type", type)
    options: Dict[str, object] = {}
    if priority:
        options["priority"] = _integer("priority", priority, -(2**63), 2**63 - 1)
    for key, seconds, limit in (
        ("delay", delay, wire.MAX_MS),
        ("timeout", timeout, wire.MAX_MS),
        ("backoff", backoff, wire.MAX_BACKOFF_MS),
        ("expires", expires, wire.MAX_MS),
    ):
        if seconds:
            options[key + "_ms"] = millis(key, seconds, limit)
    if retries is not None:
        options["retries"] = _integer("retries", retries, 0, wire.MAX_RETRIES)
    if detach:
        options["detach"] = True
    if not ack:
        options["ack"] = False
    if progress:
        options["progress"] = True
    newer = sorted(options.keys() - {"priority"})
    if compat and newer:
        raise Unsupported(f"not known to a compat broker: {', '.join(newer)}")
    return wire.submit(id, type, encode_body(body), options)


def _integer(field: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} {value!r}: not an int")
    if not least <= value <= most:
        raise ValueError(f"{field} {value}: must be {least} … {most}")
    return value


def check_size(id: str, frame: bytes, limit: int) -> None:
    """Raise SizeError for a frame that the broker would not take."""
    size = len(frame) - wire.HEADER_LEN
    if size > limit:
        raise SizeError(f"frame of {size} bytes, at most {limit} are taken", id)


class JobBase(PendingJob):
    """What the two kinds of pending jobs share."""

    def __init__(
        self,
        id: str,
        type: Optional[str],
        detach: bool,
        ack: bool,
        raw: bool,
        on_progress: Optional[OnProgress],
    ) -> None:
        self.id = id
        #: The job's type, None for the broker's default one.
        self.type = type
        self.detached = detach
        self.silent = not ack
        self._raw = raw
        self._on_progress = on_progress

    def _value(self, message: Message, key: str) -> Any:
        return message.raw(key) if self._raw else message.get(key)

    def _progressed(self, message: Message) -> None:
        if self._on_progress is None:
            return
        try:
            self._on_progress(self._value(message, "progress"))
        except Exception:
            logger.exception("on_progress of job %r failed", self.id)
