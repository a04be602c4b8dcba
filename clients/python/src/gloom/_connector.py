"""A submitter's way to a broker: jobs wait for room and for a connection."""

import asyncio
import threading
from collections import deque
from typing import Callable

from . import errors, wire
from ._link import Backoff, Done, is_permanent
from ._loop import start
from ._options import Event, Notice, Options
from ._session import Session
from .errors import ClosedError, GloomError, NotConnected, RefusedError
from .pending import PendingJob
from .wire import Fields

#: The maximum number of bytes that may wait for the event loop to send them.
MAX_UNSENT = 1024 * 1024


class Connector:
    """A submitter's way to the brokers.  Keeps a session with one of them while it
    serves, then with the next one that does, and admits jobs while there is a session
    and room in the window.

    Any thread may call enter; all other methods belong to the thread of the connection's
    loop, where tasks wait.  The lock guards what enter reads and changes.
    """

    def __init__(self, options: Options, window: int) -> None:
        self._options = options
        self._window = window
        self._lock = threading.RLock()  # a signal handler may submit a job, too
        self._shut = False  # no more jobs are admitted
        # The connection for new jobs.  When it is lost, its kept jobs stay with it until
        # there is another one.
        self.session: Session | None = None
        #: Why the last attempt to reach any broker failed: a RefusedError when all
        #: refuse permanently, else NotConnected.
        self._error: Exception | None = None
        # Admitted jobs that are to be sent, and their bytes.  Each send begins a new inbox.
        self.inbox: deque[PendingJob] = deque()
        self._unsent = 0
        self._out = 0  # jobs that left the inbox and have not ended
        self._turns: deque[asyncio.Future[None]] = deque()  # one for each waiting task
        self._next = 0
        self._sessions: set[Session] = set()
        self._task: asyncio.Task[None] | None = None  # connects, until closed

    # Admission: conditions, and waiting for them.

    def enter(self, job: PendingJob) -> bool:
        """Take a place in the window; returns whether there was one."""
        with self._lock:
            if not self.is_ready(patient=True):
                return False
            assert self.session is not None
            wire.check_size(job.frame, self.session.max_frame, job.id)
            full = self.outstanding >= self._window or self._unsent >= MAX_UNSENT
            if full or not self.session.writable:
                return False
            self.inbox.append(job)  # an interrupt cannot leave it half counted
            self._unsent += len(job.frame)
            return True

    @property
    def outstanding(self) -> int:
        """The number of admitted jobs that have not ended."""
        with self._lock:
            return self._out + len(self.inbox)

    def is_ready(self, patient: bool) -> bool:
        """Whether there is a connection.  Raises the error of the last attempt to make
        one; if patient, only when all brokers refuse permanently."""
        if self._shut:
            raise ClosedError("closed")
        if self.session is not None and self.session.cause is None:
            return True
        if self._error is not None:
            if not patient or isinstance(self._error, RefusedError):
                raise errors.fresh_copy(self._error)
        return False

    async def wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        """Begin to connect, and wait until a condition holds.  After timeout seconds raise
        WindowFull, NotConnected or, if it is shut, TimeoutError."""
        self.begin()
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    turn: asyncio.Future[None] = asyncio.Future()
                    self._turns.append(turn)
                    try:
                        await turn
                    except asyncio.CancelledError:
                        if not turn.cancelled():
                            self.wake(all=False)  # pass it on
                        raise
        except TimeoutError:
            self.give_up(timeout)

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
        if self._shut:
            raise TimeoutError(f"{outstanding} after {wait} s")
        after = f" within {wait:g} s" if wait else ""
        if self.session is not None and self.session.cause is None:
            full = self.outstanding >= self._window
            why = outstanding if full else "too many bytes unsent"
            raise errors.WindowFull(f"{why}, no room{after}")
        raise NotConnected(
            f"not connected{after}: {self._error or 'no attempt yet'}"
        ) from self._error

    # The connection.

    def begin(self) -> None:
        """Connect, and reconnect until closed."""
        if self._task is None and not self._shut:
            self._task = start(self._run())

    async def _run(self) -> None:
        addrs = self._options.addrs
        backoff = Backoff(self._options)
        old: Session | None = None  # the connection that is draining or lost
        while True:
            tried = await self._try_all(old)
            if isinstance(tried, Session):
                self._adopt(tried)
                if old is not None:
                    old.retire("nothing pending")  # pending jobs stay there
                old = tried
                await old.over.wait()
                patience = 0.0 if len(addrs) > 1 else None
            else:
                if old is None:
                    self._error = tried
                    if self.session is not None and isinstance(tried, RefusedError):
                        self.session.lose(tried)
                    self.wake()
                patience = backoff.failed(", ".join(addrs), tried)
                if old is None:
                    await asyncio.sleep(patience)
                    continue
            await asyncio.wait({old.lost}, timeout=patience)
            if old.lost.done():
                await asyncio.sleep(backoff.lost(old))
                if old.jobs:  # kept ones: the broker still has them
                    self._next = addrs.index(old.addr)
                old = None

    async def _try_all(self, draining: Session | None) -> Session | GloomError:
        """Try each address once, in turn, except the one that is draining.

        Errors are returned, not raised: they reach users, and their tracebacks
        must not expose the frames that continue to run here.
        """
        failures: list[tuple[str, Exception]] = []
        for _ in self._options.addrs:
            addr = self._options.addrs[self._next % len(self._options.addrs)]
            self._next += 1
            if draining is not None and addr == draining.addr:
                continue
            session = Session(self._options, addr, self)
            try:
                await session.open()
                return session
            except Exception as err:
                failures.append((addr, err.with_traceback(None)))
        if not failures:
            return NotConnected("no broker reached: the only one is draining")
        first = failures[0][1]
        if isinstance(first, RefusedError) and all(is_permanent(err) for _, err in failures):
            return first
        details = "; ".join(f"{addr}: {err}" for addr, err in failures)
        error = NotConnected(f"no broker reached: {details}")
        error.__cause__ = first
        return error

    def _adopt(self, session: Session) -> None:
        """Use this connection for new jobs."""
        self._sessions.add(session)
        session.lost.add_done_callback(lambda _: self._on_lost(session))
        self._options.report(Notice(Event.CONNECTED, session.addr))
        last = self.session
        if last is not None and last not in self._sessions:
            session.take_over(last)
        self.session, self._error = session, None
        self.wake()

    def _on_lost(self, session: Session) -> None:
        cause, keep = session.lost.result(), session is self.session
        if keep:
            self.send()  # what was admitted before it was lost
        if self._task is None or self._task.done():
            cause, keep = ClosedError("closed"), False
        session.lose(cause, keep)
        self._sessions.discard(session)
        session.over.set()

    # Called by submitters and sessions.

    def send(self) -> None:
        """Send the jobs that were admitted since the last call."""
        with self._lock:
            self._out += len(self.inbox)
            jobs, self.inbox = self.inbox, deque()
            unsent, self._unsent = self._unsent, 0
        if unsent >= MAX_UNSENT:
            self.wake()
        while jobs:
            assert self.session is not None  # or they would not have been admitted
            self.session.submit(jobs.popleft())

    def ask(self, verb: str, id: str | None, fields: Fields, done: Done) -> None:
        """Send a request about a job on the connection where it is pending, else on
        the one for new jobs.  A request about a kept job of a lost connection waits
        until that job is attached to."""
        pending = (session for session in self._sessions if id in session.jobs)
        session = next(pending, self.session)
        if session is not None and session.cause is None:
            session.request(verb, id, fields, done)
        elif session and (job := session.jobs.get(id or "")) and job.kept:
            session.later.append((verb, id, fields, done))
        else:
            done(NotConnected("no connection to a broker"))

    def release(self) -> None:
        """Stop counting one job against the window."""
        with self._lock:
            self._out -= 1
        if self._turns:
            self.wake(all=self._shut)

    def stop_admitting(self) -> None:
        """Admit no more jobs, and send those that were admitted."""
        with self._lock:
            self._shut = True
        self.send()  # a submit may have been interrupted before it asked for that
        self.wake()

    async def close(self, wait: float = 0) -> None:
        """Drop all connections; if kept jobs are out, first read what the broker has
        sent, for at most wait seconds.  Pending jobs fail with a LostError whose cause
        is a ClosedError."""
        self.stop_admitting()
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})
            kept = [s for s in self._sessions if any(j.kept for j in s.jobs.values())]
            if kept and wait > 0:
                for session in kept:
                    session.end_output()
                await asyncio.wait([session.lost for session in kept], timeout=wait)
        finally:
            for session in self._sessions:
                session.abort(ClosedError("closed"))
            if self._sessions:
                await asyncio.wait([session.lost for session in self._sessions])
            if self.session is not None:
                self.session.lose(ClosedError("closed"))
