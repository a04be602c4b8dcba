"""Where jobs wait for room in the window and for a connection."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Callable

from . import errors, wire
from .pending import PendingJob

if TYPE_CHECKING:
    from ._connector import Session

#: Most bytes that may wait for the event loop to send them.
MAX_UNSENT = 1024 * 1024


class Gate:
    """Admits jobs while there is a connection, and room in the window.  Any thread may
    call enter; all other methods belong to the thread of the connection's loop, where
    tasks wait.  The lock guards what enter reads and changes."""

    def __init__(self, window: int) -> None:
        self._lock = threading.Lock()
        self._window = window
        self._closing = False
        self.session: Session | None = None  # the connection for new jobs
        #: Why the last attempt to reach any broker failed.
        self._error: Exception | None = None
        # Admitted jobs that the event loop has yet to send, and their bytes.
        self._inbox: list[PendingJob] = []
        self._unsent = 0
        self.outstanding = 0  # admitted jobs that have not ended
        self._turns: deque[asyncio.Future[None]] = deque()  # one for each waiting task

    # Called when something changes.

    def connected(self, session: Session | None, error: Exception | None) -> None:
        """Set the connection for new jobs, None if there is none.  error: why the last
        attempt to make one failed; None keeps the previous error."""
        with self._lock:
            self.session = session
            self._error = None if session is not None else error or self._error
        self.wake()

    def take(self) -> list[PendingJob]:
        """Return the jobs that were admitted since the last call."""
        with self._lock:
            jobs, self._inbox = self._inbox, []
            unsent, self._unsent = self._unsent, 0
        if unsent >= MAX_UNSENT:
            self.wake()
        return jobs

    def leave(self) -> None:
        """Stop counting one job."""
        with self._lock:
            self.outstanding -= 1
        if self._turns:
            self.wake(all=self._closing)

    def close(self) -> None:
        """Admit no more jobs."""
        with self._lock:
            self._closing = True
        self.wake()

    # Conditions to wait for.

    def enter(self, job: PendingJob) -> bool:
        """Take a place in the window; returns whether there was one."""
        with self._lock:
            if not self.ready(patient=True):
                return False
            assert self.session is not None
            too_large = wire.too_large(job.frame, self.session.max_frame)
            if too_large is not None:
                raise errors.SizeError(too_large, job.id)
            full = self.outstanding >= self._window or self._unsent >= MAX_UNSENT
            if full or not self.session.writable:
                return False
            self.outstanding += 1
            self._inbox.append(job)
            self._unsent += len(job.frame)
            return True

    def ready(self, patient: bool) -> bool:
        """Whether there is a connection.  Raises the error of the last attempt to make
        one; if patient, only when all brokers refuse permanently."""
        if self._closing:
            raise errors.ClosedError("closed")
        if self.session is None and self._error is not None:
            if not patient or isinstance(self._error, errors.RefusedError):
                raise errors.again(self._error)
        return self.session is not None

    def empty(self) -> bool:
        """Whether no job is outstanding."""
        return not self.outstanding

    async def wait(self, condition: Callable[[], bool], wait: float | None) -> None:
        """Wait until a condition holds.  After wait seconds raise WindowFull,
        NotConnected or, if the gate is closed, asyncio.TimeoutError."""
        loop = asyncio.get_running_loop()
        until = None if wait is None else loop.time() + wait
        while not condition():
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                self.give_up(wait)
            turn = loop.create_future()
            self._turns.append(turn)
            try:
                await asyncio.wait({turn}, timeout=left)
            except BaseException:
                if turn.done():
                    self.wake(all=False)  # pass it on
                raise
            finally:
                turn.cancel()

    def wake(self, all: bool = True) -> None:
        """Have all waiting tasks, or one, check their condition again."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():  # its task is waiting
                turn.set_result(None)
                if not all:
                    return

    def give_up(self, wait: float | None) -> None:
        """Raise the error that says why the condition does not hold."""
        outstanding = f"{self.outstanding} jobs outstanding"
        if self._closing:
            raise asyncio.TimeoutError(f"{outstanding} after {wait} s")
        after = f" within {wait:g} s" if wait else ""
        if self.session is not None:
            full = self.outstanding >= self._window
            why = outstanding if full else "too many bytes unsent"
            raise errors.WindowFull(f"{why}, no room{after}")
        raise errors.NotConnected(
            f"not connected{after}: {self._error or 'no attempt yet'}"
        ) from self._error
