"""Where jobs wait for room in the window and for a connection."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Callable, Generator

from . import errors
from .pending import PendingJob
from .wire import HEADER_LEN

if TYPE_CHECKING:
    from ._connector import Session

#: Bytes that may wait to be taken over by the event loop.
MAX_UNSENT = 1024 * 1024

_Waiter = concurrent.futures.Future  # what threads and tasks can wait for alike


class Gate:
    """Lets jobs in.  Threads and tasks may wait here together; the lock guards all
    fields and is never held while one waits."""

    def __init__(self, window: int) -> None:
        self._lock = threading.Lock()
        self._waiters: deque[_Waiter[None]] = deque()
        self._window = window
        self._closing = False
        #: The connection for new jobs.
        self.session: Session | None = None
        #: Why the last attempt at all brokers failed.
        self._error: Exception | None = None
        # Jobs that were let in, for the event loop to send.
        self._inbox: list[PendingJob] = []
        self._unsent = 0
        #: Jobs let in that have not ended.
        self.outstanding = 0

    # What happens.

    def connected(self, session: Session | None, error: Exception | None) -> None:
        """There is another connection for new jobs, or none any more.  error: why
        the last attempt to make one failed, None to keep what was known."""
        with self._lock:
            self.session = session
            self._error = None if session is not None else error or self._error
            self._wake(all=True)

    def writable(self) -> None:
        """The connection takes more bytes."""
        with self._lock:
            self._wake(all=True)

    def take(self) -> list[PendingJob]:
        """The jobs that were let in since the last call."""
        with self._lock:
            jobs, self._inbox = self._inbox, []
            if self._unsent >= MAX_UNSENT:
                self._wake(all=True)
            self._unsent = 0
            return jobs

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

    # What one can wait for: under the lock, and true once it has come.

    def enter(self, job: PendingJob) -> bool:
        """Take a place in the window."""
        if not self.ready(patient=True):
            return False
        assert self.session is not None
        size, limit = len(job.frame) - HEADER_LEN, self.session.max_frame
        if size > limit:
            too_large = f"frame of {size} bytes, at most {limit} are taken"
            raise errors.SizeError(too_large, job.id)
        if (
            not self.session.writable
            or self.outstanding >= self._window
            or self._unsent >= MAX_UNSENT
        ):
            return False
        self.outstanding += 1
        self._inbox.append(job)
        self._unsent += len(job.frame)
        return True

    def ready(self, patient: bool) -> bool:
        """Whether there is a connection.  Raises what the last attempt to make one
        has met; if patient, only the refusal of all brokers for good."""
        if self._closing:
            raise errors.ClosedError("closed")
        if self.session is None and self._error is not None:
            if not patient or isinstance(self._error, errors.RefusedError):
                raise errors.again(self._error)
        return self.session is not None

    def empty(self) -> bool:
        """Whether no job is outstanding."""
        return not self.outstanding

    def wait(self, condition: Callable[[], bool], wait: float | None) -> None:
        """Block until a condition holds.  After wait seconds WindowFull, NotConnected
        or, of a closed gate, asyncio.TimeoutError tells why it does not."""
        with self._lock:
            if condition():
                return  # mostly it does, and costs no turn
        with contextlib.closing(self._turns(condition, wait)) as turns:
            for turn, left in turns:
                try:
                    turn.result(left)
                except concurrent.futures.TimeoutError:
                    pass

    async def wait_async(
        self, condition: Callable[[], bool], wait: float | None
    ) -> None:
        """As wait, for a task."""
        with contextlib.closing(self._turns(condition, wait)) as turns:
            for turn, left in turns:
                await asyncio.wait({asyncio.wrap_future(turn)}, timeout=left)

    def _turns(
        self, condition: Callable[[], bool], wait: float | None
    ) -> Generator[tuple[_Waiter[None], float | None], None, None]:
        """What to wait for, and how many seconds, until the condition holds."""
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = None if until is None else until - time.monotonic()
            with self._lock:
                if condition():
                    return
                if left is not None and left <= 0:
                    self._give_up(wait)
                turn: _Waiter[None] = concurrent.futures.Future()
                self._waiters.append(turn)
            interrupted = True
            try:
                yield turn, left
                interrupted = False
            finally:
                if interrupted or not turn.done():
                    self._abandon(turn)

    def _abandon(self, turn: _Waiter[None]) -> None:
        with self._lock:
            if turn.done():
                self._wake(all=False)  # it is the next one's then
            else:
                self._waiters.remove(turn)

    def _wake(self, all: bool) -> None:
        while self._waiters:
            self._waiters.popleft().set_result(None)
            if not all:
                return

    def _give_up(self, wait: float | None) -> None:
        """Raise what kept the condition from holding."""
        if self._closing:
            raise asyncio.TimeoutError(
                f"{self.outstanding} jobs outstanding after {wait} s"
            )
        after = f" within {wait:g} s" if wait else ""
        if self.session is not None:
            why = "too many bytes unsent"
            if self.outstanding >= self._window:
                why = f"{self.outstanding} jobs outstanding"
            raise errors.WindowFull(f"{why}, no room{after}")
        raise errors.NotConnected(
            f"not connected{after}: {self._error or 'nothing tried yet'}"
        ) from self._error
