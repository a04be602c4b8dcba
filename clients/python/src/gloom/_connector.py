"""A submitter's connection to one of several brokers, kept up by itself."""

from __future__ import annotations

import asyncio
from typing import Callable

from ._backoff import Backoff, hopeless
from ._gate import Gate
from ._link import Link
from ._options import Event, Notice, Options
from ._replies import Done, Jobs
from .errors import ClosedError, GloomError, LostError, NotConnected, RefusedError
from .pending import PendingJob


class Session(Jobs, Link):
    """One connection, and what is pending on it."""

    def __init__(self, connector: Connector, addr: str) -> None:
        super().__init__(connector.options, addr)
        self._connector = connector
        #: Set when the connection is lost or the broker has said that it is
        #: stopping.
        self.over = asyncio.Event()
        self._retired = False

    def freed(self) -> None:
        self._connector.gate.leave()

    def before_flush(self) -> None:
        self.confirm()

    def after_read(self) -> None:
        if self.draining:
            self.over.set()
        if self._retired and self.idle:
            self.close(ClosedError("nothing pending"))

    def on_writable(self) -> None:
        if self is self._connector.current:
            self._connector.gate.change(self.writable)

    def retire(self) -> None:
        """Close once nothing is pending any more."""
        self._retired = True
        self.after_read()


class Connector:
    """Keeps a session to one of the brokers as long as that serves, then to
    the next one that does.  Belongs to the event loop's thread.

    It tells the gate whether there is a connection, whether that takes more bytes
    and, after an attempt at every broker has failed, why not: a RefusedError when
    all refuse for good, else NotConnected.
    """

    def __init__(self, options: Options, gate: Gate) -> None:
        self.options = options
        self.gate = gate
        self._backoff = Backoff(options.backoff)
        self._next = 0
        self._sessions: set[Session] = set()
        #: The session for new jobs.
        self.current: Session | None = None
        # Kept jobs of the session that was current and is lost, and its broker.
        self._kept: list[PendingJob] = []
        self._kept_at = ""
        # What was asked about them meanwhile.
        self._asked: list[tuple[Callable[[Session, Done], None], Done]] = []
        self._closed = False

    async def run(self) -> None:
        """Connect and reconnect until cancelled."""
        loop = asyncio.get_running_loop()
        session = await self._connect()
        while True:
            since = loop.time()
            await session.over.wait()
            if len(self.options.addrs) > 1 and not session.lost.done():
                other = await self._leave(session)
                if other is not None:
                    session = other
                    continue
            cause = await asyncio.shield(session.lost)
            self._backoff.lasted(loop.time() - since)
            wait = self._backoff.wait()
            self.options.tell(Notice(Event.LOST, session.addr, cause, wait))
            await asyncio.sleep(wait)
            if self._kept:  # they wait there
                self._next = self.options.addrs.index(session.addr)
            session = await self._connect()

    async def _connect(self) -> Session:
        while True:
            tried = await self._try_all(None)
            if isinstance(tried, Session):
                self._adopt(tried)
                return tried
            if isinstance(tried, RefusedError):
                self._drop_kept(tried)
            self.gate.change(None, tried)
            await asyncio.sleep(self._failed(tried))

    async def _leave(self, old: Session) -> Session | None:
        """Turn from a draining broker to another one; what is pending on the
        old connection stays there.  None when the old one goes first."""
        while not old.lost.done():
            tried = await self._try_all(old.addr)
            if isinstance(tried, Session):
                self._adopt(tried)
                old.retire()
                return tried
            await asyncio.wait({old.lost}, timeout=self._failed(tried))
        return None

    def _failed(self, error: Exception) -> float:
        wait = self._backoff.wait()
        addrs = ", ".join(self.options.addrs)
        self.options.tell(Notice(Event.FAILED, addrs, error, wait))
        return wait

    async def _try_all(self, leave_out: str | None) -> Session | GloomError:
        """One attempt at each address in turn, but for the one left out.

        Errors are returned, not raised: users will get them, and must not get
        hold of the frames that go on running here.
        """
        errors = []
        for _ in self.options.addrs:
            addr = self.options.addrs[self._next % len(self.options.addrs)]
            self._next += 1
            if addr == leave_out:
                continue
            session = Session(self, addr)
            try:
                await session.open()
                return session
            except Exception as err:
                errors.append((addr, err.with_traceback(None)))
        if not errors:
            return NotConnected(f"no broker but {leave_out}, which drains")
        first = errors[0][1]
        if isinstance(first, RefusedError) and all(hopeless(err) for _, err in errors):
            return first
        told = "; ".join(f"{addr}: {err}" for addr, err in errors)
        error = NotConnected(f"no broker reached: {told}")
        error.__cause__ = first
        return error

    def _adopt(self, session: Session) -> None:
        """Make a connection the one for new jobs."""
        self.current = session
        self._sessions.add(session)
        session.lost.add_done_callback(lambda _: self._gone(session))
        self.options.tell(Notice(Event.CONNECTED, session.addr))
        kept, self._kept = self._kept, []
        for job in kept:
            if job.sent and session.addr != self._kept_at:
                self._drop(job, NotConnected(f"now connected to {session.addr}"))
            else:
                session.go_on(job)
        asked, self._asked = self._asked, []
        for ask, done in asked:
            ask(session, done)
        self._kept_at = session.addr
        self.gate.change(session.writable)

    def _gone(self, session: Session) -> None:
        cause, current = session.lost.result(), session is self.current
        keep = current and not isinstance(cause, ClosedError)
        self._kept += session.lose(cause, keep)
        self._sessions.discard(session)
        if current:
            self.current = None
            self.gate.change(None)
        session.over.set()

    def _drop_kept(self, cause: Exception) -> None:
        kept, self._kept = self._kept, []
        for job in kept:
            self._drop(job, cause)
        asked, self._asked = self._asked, []
        for _, done in asked:
            done(cause)

    def _drop(self, job: PendingJob, cause: Exception) -> None:
        self.gate.leave()
        job._failed(LostError(cause, self._kept_at, job.id, job.acked, job.sent))

    # What submitters ask for.

    @property
    def max_frame(self) -> int:
        """Largest frame that the broker takes, in bytes."""
        session = self.current
        return session.max_frame if session else self.options.max_frame

    def submit(self, job: PendingJob) -> None:
        """Send a job, or attach to one; it fails at once when the connection has
        just gone."""
        if self.current is not None:
            self.current.submit(job)
        elif job.kept and not self._closed:
            self._kept.append(job)
        else:
            self._drop(job, NotConnected("gone before the job was sent"))

    def ask(self, id: str, ask: Callable[[Session, Done], None], done: Done) -> None:
        """Have a session ask about a job: the one where it is pending, else the one
        for new jobs.  What is asked about a job of a lost one waits with that."""
        session = next((s for s in self._sessions if id in s.jobs), self.current)
        if session is not None:
            ask(session, done)
        elif any(job.id == id for job in self._kept):
            self._asked.append((ask, done))
        else:
            done(NotConnected("no connection to a broker"))

    async def close(self) -> None:
        """Drop all connections; what is pending fails with a LostError whose
        cause is a ClosedError."""
        self._closed = True
        lost = [session.lost for session in self._sessions]
        for session in list(self._sessions):
            session.abort(ClosedError("closed"))
        if lost:
            await asyncio.wait(lost)
        self._drop_kept(ClosedError("closed"))
