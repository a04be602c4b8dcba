"""What the two workers share: their settings."""

from __future__ import annotations

import ssl
from typing import Generic, Optional, Tuple, TypeVar

from . import wire
from ._options import (
    BACKOFF,
    DIAL_TIMEOUT,
    STOP_TIMEOUT,
    WORKER_ADDR,
    Notify,
    Options,
)


H = TypeVar("H")


class WorkerBase(Generic[H]):
    """The settings, which Worker describes."""

    def __init__(
        self,
        type: str,
        handler: H,
        *addrs: str,
        concurrency: int = 0,
        prefetch: int = 0,
        stop_timeout: float = STOP_TIMEOUT,
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
        self._type = wire.check_name("type", type)
        self._handler = handler
        if not callable(handler):
            raise TypeError(f"handler {handler!r}: not callable")
        for field, value in (
            ("concurrency", concurrency),
            ("prefetch", prefetch),
            ("stop_timeout", stop_timeout),
        ):
            if value < 0:
                raise ValueError(f"{field} {value}: must not be negative")
        if prefetch and prefetch < concurrency:
            raise ValueError(
                f"prefetch {prefetch}: must be at least the concurrency, "
                f"{concurrency}"
            )
        if prefetch and compat:
            raise ValueError("prefetch cannot be had from a compat broker")
        self._concurrency = concurrency or prefetch or 1
        self._prefetch = prefetch
        self._stop_timeout = stop_timeout
        self._raw = raw
        self._options = Options(
            addrs=addrs or (WORKER_ADDR,),
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
