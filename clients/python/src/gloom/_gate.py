"""Where submitters wait for room in the window and for a connection."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from typing import Callable

from .errors import ClosedError, NotConnected, RefusedError, WindowFull, again

#: Bytes that may wait to be taken over by the thread that sends them.
MAX_UNSENT = 1024 * 1024

_Waiter = concurrent.futures.Future  # what threads and tasks can wait for alike


class Gate:
    """Says when a job may be sent.  Threads and tasks may wait here together; the
    lock guards all fields and is never held while one waits."""

    def __init__(self, window: int) -> None:
        self._lock = threading.Lock()
        self._waiters: deque[_Waiter[None]] = deque()
        self._window = window
        #: Whether the connection takes more bytes; None when there is none.
        self._writable: bool | None = None
        self._closing = False
        #: Why the last attempt at all brokers failed.
        self._error: Exception | None = None
        self._unsent = 0
        #: Jobs submitted and not ended.
        self.outstanding = 0

    # What happens.

    def change(self, writable: bool | None, error: Exception | None = None) -> None:
        """Whether there is a connection that takes more bytes, None when there is no
        connection; and the last failure to connect."""
        with self._lock:
            self._writable = writable
            if self._connected:
                self._error = None
            elif error is not None:
                self._error = error
            self._wake(all=True)

    def taken(self, size: int) -> None:
        """So many bytes have been taken over."""
        with self._lock:
            full = self._unsent >= MAX_UNSENT
            self._unsent -= size
            if full:
                self._wake(all=True)

    def leave(self) -> None:
        """A job no longer counts."""
        with self._lock:
            self.outstanding -= 1
            if self._waiters:
                self._wake(all=self._closing)

    def close(self) -> None:
        """Let nobody in any more."""
        with self._lock:
            self._closing = True
            self._wake(all=True)

    @property
    def _connected(self) -> bool:
        return self._writable is not None

    # What one can wait for: under the lock, and true once it has come.

    def enter(self, size: int = 0) -> bool:
        """Take a place in the window, for a frame of so many bytes that another
        thread is to send."""
        if self._closing:
            raise ClosedError("closed")
        if not self._connected and isinstance(self._error, RefusedError):
            raise again(self._error)
        if (
            not self._writable
            or self.outstanding >= self._window
            or self._unsent >= MAX_UNSENT
        ):
            return False
        self.outstanding += 1
        self._unsent += size
        return True

    def tried(self) -> bool:
        """Whether there is a connection or a reason why there is none."""
        return self._connected or self._closing or self._error is not None

    def settled(self) -> bool:
        """Whether there is a connection, or no hope of one."""
        return self._connected or self._closing or isinstance(self._error, RefusedError)

    def empty(self) -> bool:
        """Whether no job is outstanding."""
        return not self.outstanding

    def wait(self, ready: Callable[[], bool], wait: float | None) -> bool:
        """Block until a condition holds, or for so many seconds; whether it does."""
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = None if until is None else until - time.monotonic()
            waiter = self._poll(ready, left)
            if isinstance(waiter, bool):
                return waiter
            try:
                waiter.result(left)
            except concurrent.futures.TimeoutError:
                self._abandon(waiter)
            except BaseException:
                self._abandon(waiter)
                raise

    async def wait_async(self, ready: Callable[[], bool], wait: float | None) -> bool:
        """As wait, for a task."""
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = None if until is None else until - time.monotonic()
            waiter = self._poll(ready, left)
            if isinstance(waiter, bool):
                return waiter
            woken = False
            try:
                await asyncio.wait({asyncio.wrap_future(waiter)}, timeout=left)
                woken = waiter.done()
            finally:
                if not woken:
                    self._abandon(waiter)

    def _poll(
        self, ready: Callable[[], bool], left: float | None
    ) -> bool | _Waiter[None]:
        with self._lock:
            if ready():
                return True
            if left is not None and left <= 0:
                return False
            waiter: _Waiter[None] = concurrent.futures.Future()
            self._waiters.append(waiter)
            return waiter

    def _abandon(self, waiter: _Waiter[None]) -> None:
        with self._lock:
            if waiter.done():
                self._wake(all=False)  # the turn was ours; the next one's then
            else:
                self._waiters.remove(waiter)

    def _wake(self, all: bool) -> None:
        while self._waiters:
            self._waiters.popleft().set_result(None)
            if not all:
                return

    # Why one waited in vain.

    def check_connected(self, wait: float | None) -> None:
        """Raise what kept us from connecting."""
        if self._closing:
            raise ClosedError("closed")
        if not self._connected:
            if self._error is not None:
                raise again(self._error)
            self.give_up(wait)

    def give_up(self, wait: float | None) -> None:
        """Raise what kept a job from being sent."""
        after = f" within {wait:g} s" if wait else ""
        if self._connected:
            why = "too many bytes unsent"
            if self.outstanding >= self._window:
                why = f"{self.outstanding} jobs outstanding"
            raise WindowFull(f"{why}, no room{after}")
        raise NotConnected(
            f"not connected{after}: {self._error or 'nothing tried yet'}"
        ) from self._error
