"""Where submitters wait for room in the window and for a connection."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Callable, Deque, Optional

from .errors import (
    ClosedError,
    NotConnected,
    RefusedError,
    WindowFull,
    again,
)


class _State:
    """What decides whether a job may be sent."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._connected = False
        self._writable = False
        self._closing = False
        #: Why the last attempt at all brokers failed.
        self._error: Optional[Exception] = None
        #: Jobs submitted and not ended.
        self.outstanding = 0

    def _passable(self) -> bool:
        if self._closing:
            raise ClosedError("closed")
        if self._connected:
            return self._writable and self.outstanding < self._window
        if isinstance(self._error, RefusedError):
            raise again(self._error)
        return False

    def _tried(self) -> bool:
        """Whether there is a connection or a reason why there is none."""
        return self._connected or self._closing or self._error is not None

    def _settled(self) -> bool:
        """Whether there is a connection, or no hope of one."""
        return (
            self._connected
            or self._closing
            or isinstance(self._error, RefusedError)
        )

    def _check_connected(self, wait: Optional[float]) -> None:
        if self._closing:
            raise ClosedError("closed")
        if not self._connected:
            if self._error is not None:
                raise again(self._error)
            self._give_up(wait)

    def _give_up(self, wait: Optional[float]) -> None:
        after = f" within {wait:g} s" if wait else ""
        if self._connected:
            why = "too many bytes unsent"
            if self.outstanding >= self._window:
                why = f"{self.outstanding} jobs outstanding"
            raise WindowFull(f"{why}, no room{after}")
        raise NotConnected(
            f"not connected{after}: {self._error or 'nothing tried yet'}"
        ) from self._error

    def _set(self, connected: bool, error: Optional[Exception]) -> None:
        self._connected = connected
        if connected:
            self._error = None
        elif error is not None:
            self._error = error


#: Bytes that may wait to be taken over by the thread that sends them.
MAX_UNSENT = 1024 * 1024


class Gate(_State):
    """For threads, which hand their frames over to another one."""

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self._changed = threading.Condition(threading.Lock())
        self._unsent = 0

    def enter(self, size: int, wait: Optional[float]) -> None:
        """Take a place in the window, for a frame of so many bytes, once it
        can be sent."""
        with self._changed:
            if not self._passable():
                if wait is None or wait > 0:
                    self._changed.wait_for(self._passable, wait)
                if not self._passable():
                    self._give_up(wait)
            self.outstanding += 1
            self._unsent += size

    def _passable(self) -> bool:
        return super()._passable() and self._unsent < MAX_UNSENT

    def taken(self, size: int) -> None:
        """So many bytes have been taken over."""
        with self._changed:
            full = self._unsent >= MAX_UNSENT
            self._unsent -= size
            if full:
                self._changed.notify_all()

    def connected(self, wait: Optional[float]) -> None:
        """Wait for a connection; raises what made all attempts fail."""
        with self._changed:
            self._changed.wait_for(
                self._tried if wait is None else self._settled, wait
            )
            self._check_connected(wait)

    def empty(self, wait: Optional[float]) -> bool:
        """Wait until no job is outstanding; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.outstanding, wait)

    def change(self, connected: bool, error: Optional[Exception]) -> None:
        """Whether there is a connection, and the last failure to connect."""
        with self._changed:
            self._set(connected, error)
            self._changed.notify_all()

    def writable(self, can: bool) -> None:
        """Whether the connection takes more bytes."""
        with self._changed:
            self._writable = can
            self._changed.notify_all()

    def leave(self) -> None:
        """A job no longer counts."""
        with self._changed:
            self.outstanding -= 1
            if self._closing:
                self._changed.notify_all()
            else:
                self._changed.notify()

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()


class AsyncGate(_State):
    """For the tasks of one event loop."""

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self._waiters: "Deque[asyncio.Future[None]]" = deque()

    async def enter(self, wait: Optional[float]) -> None:
        """Take a place in the window once jobs can be sent."""
        if not self._passable():
            await self._until(self._passable, wait)
            if not self._passable():
                self._give_up(wait)
        self.outstanding += 1

    async def connected(self, wait: Optional[float]) -> None:
        """Wait for a connection; raises what made all attempts fail."""
        await self._until(
            self._tried if wait is None else self._settled, wait
        )
        self._check_connected(wait)

    async def empty(self, wait: Optional[float]) -> bool:
        """Wait until no job is outstanding; whether that is so."""
        await self._until(lambda: not self.outstanding, wait)
        return not self.outstanding

    def change(self, connected: bool, error: Optional[Exception]) -> None:
        """Whether there is a connection, and the last failure to connect."""
        self._set(connected, error)
        self._wake(all=True)

    def writable(self, can: bool) -> None:
        """Whether the connection takes more bytes."""
        self._writable = can
        self._wake(all=True)

    def leave(self) -> None:
        """A job no longer counts."""
        self.outstanding -= 1
        self._wake(all=self._closing)

    def close(self) -> None:
        """Let nobody in any more."""
        self._closing = True
        self._wake(all=True)

    async def _until(
        self, true: Callable[[], bool], wait: Optional[float]
    ) -> None:
        loop = asyncio.get_running_loop()
        until = None if wait is None else loop.time() + wait
        while not true():
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                return
            waiter: "asyncio.Future[None]" = loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait({waiter}, timeout=left)
            except BaseException:
                if waiter.done():
                    self._wake()  # the turn was ours; the next one's then
                raise
            finally:
                if not waiter.done():
                    self._waiters.remove(waiter)

    def _wake(self, all: bool = False) -> None:
        while self._waiters:
            self._waiters.popleft().set_result(None)
            if not all:
                return
