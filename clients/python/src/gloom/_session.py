"""A submitter's connection to one of several brokers, kept up by itself."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Coroutine, Mapping

from ._backoff import Backoff
from ._demux import Demux, PendingJob
from ._gate import Gate
from ._link import Link, dial
from ._options import Event, Notice, Options, logger
from ._replies import Done
from .errors import (
    ClosedError,
    Draining,
    GloomError,
    InvalidState,
    LostError,
    NotConnected,
    Overloaded,
    RefusedError,
)


def hopeless(error: BaseException) -> bool:
    """Whether trying again would only get the same refusal."""
    return isinstance(error, RefusedError) and not isinstance(
        error, (Overloaded, Draining, InvalidState)
    )


def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run a coroutine beside the others.  Only a mistake in this package ends
    it with an exception, which must not go unseen."""

    def look(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("internal error", exc_info=task.exception())

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(look)
    return task


class Session(Demux):
    """One connection that stands, and what is pending on it."""

    def __init__(self, link: Link, gate: Gate) -> None:
        super().__init__(link, gate.leave)
        self.link = link
        #: Set when the connection is lost or the broker has said that it is
        #: stopping.
        self.over = asyncio.Event()
        self._retired = False
        link.before_flush = self.confirm
        link.after_read = self._look

    def _look(self) -> None:
        if self.draining:
            self.over.set()
        if self._retired and self.idle:
            self.link.close(ClosedError("nothing pending"))

    def retire(self) -> None:
        """Close once nothing is pending any more."""
        self._retired = True
        self._look()


class Connector:
    """Keeps a session to one of the brokers as long as that serves, then to
    the next one that does.  Belongs to the event loop's thread.

    It tells the gate whether there is a connection, whether that takes more bytes
    and, after an attempt at every broker has failed, why not: a RefusedError when
    all refuse for good, else NotConnected.
    """

    def __init__(self, options: Options, gate: Gate) -> None:
        self._options = options
        self._gate = gate
        self._backoff = Backoff(options.backoff)
        self._next = 0
        self._sessions: set[Session] = set()
        self._current: Session | None = None
        # Kept jobs of the session that was current and is lost, and its broker.
        self._kept: list[PendingJob] = []
        self._kept_at = ""
        # What was asked about them meanwhile.
        self._asked: list[tuple[Done, Callable[[Session], None]]] = []
        self._closed = False

    async def run(self) -> None:
        """Connect and reconnect until cancelled."""
        loop = asyncio.get_running_loop()
        session = await self._connect()
        while True:
            since = loop.time()
            await session.over.wait()
            link = session.link
            if len(self._options.addrs) > 1 and not link.lost.done():
                other = await self._leave(session)
                if other is not None:
                    session = other
                    continue
            cause = await asyncio.shield(link.lost)
            self._backoff.lasted(loop.time() - since)
            wait = self._backoff.wait()
            self._options.tell(Notice(Event.LOST, link.addr, cause, wait))
            await asyncio.sleep(wait)
            if self._kept:  # they wait there
                self._next = self._options.addrs.index(link.addr)
            session = await self._connect()

    async def _connect(self) -> Session:
        while True:
            tried = await self._try_all(None)
            if isinstance(tried, Link):
                return self._adopt(tried)
            if isinstance(tried, RefusedError):
                self._drop_kept(tried)
            self._gate.change(False, tried)
            await asyncio.sleep(self._failed(tried))

    async def _leave(self, old: Session) -> Session | None:
        """Turn from a draining broker to another one; what is pending on the
        old connection stays there.  None when the old one goes first."""
        while not old.link.lost.done():
            tried = await self._try_all(old.link.addr)
            if isinstance(tried, Link):
                session = self._adopt(tried)
                old.retire()
                return session
            await asyncio.wait({old.link.lost}, timeout=self._failed(tried))
        return None

    def _failed(self, error: Exception) -> float:
        wait = self._backoff.wait()
        addrs = ", ".join(self._options.addrs)
        self._options.tell(Notice(Event.FAILED, addrs, error, wait))
        return wait

    async def _try_all(self, leave_out: str | None) -> Link | GloomError:
        """One attempt at each address in turn, but for the one left out.

        Errors are returned, not raised: users will get them, and must not get
        hold of the frames that go on running here.
        """
        errors = []
        for _ in self._options.addrs:
            addr = self._options.addrs[self._next % len(self._options.addrs)]
            self._next += 1
            if addr == leave_out:
                continue
            try:
                return await dial(self._options, addr)
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

    def _adopt(self, link: Link) -> Session:
        """Make a connection the one for new jobs."""
        session = self._current = Session(link, self._gate)

        def gone(lost: asyncio.Future[Exception]) -> None:
            cause, current = lost.result(), session is self._current
            keep = current and not isinstance(cause, ClosedError)
            self._kept += session.lost(cause, link.addr, link.unsent, keep)
            self._sessions.discard(session)
            if current:
                self._current = None
                self._gate.change(False, None)
            session.over.set()

        def writable(can: bool) -> None:
            if session is self._current:
                self._gate.writable(can)

        self._sessions.add(session)
        link.lost.add_done_callback(gone)
        link.on_writable = writable
        self._options.tell(Notice(Event.CONNECTED, link.addr))
        kept, self._kept = self._kept, []
        for job in kept:
            if job.sent and link.addr != self._kept_at:
                self._drop(job, NotConnected(f"now connected to {link.addr}"))
            else:
                session.go_on(job, link.addr)
        asked, self._asked = self._asked, []
        for _, ask in asked:
            ask(session)
        self._kept_at = link.addr
        self._gate.writable(link.writable)
        self._gate.change(True, None)
        return session

    def _drop_kept(self, cause: Exception) -> None:
        kept, self._kept = self._kept, []
        for job in kept:
            self._drop(job, cause)
        asked, self._asked = self._asked, []
        for done, _ in asked:
            done(cause)

    def _drop(self, job: PendingJob, cause: Exception) -> None:
        self._gate.leave()
        job._failed(LostError(cause, self._kept_at, job.id, job.acked, job.sent))

    # What submitters ask for.

    @property
    def max_frame(self) -> int:
        """Largest frame that the broker takes, in bytes."""
        session = self._current
        return session.link.max_frame if session else self._options.max_frame

    def submit(self, job: PendingJob) -> None:
        """Send a job, or attach to one; it fails at once when the connection has
        just gone."""
        if self._current is not None:
            self._current.submit(job)
        elif job.kept and not self._closed:
            self._kept.append(job)
        else:
            self._drop(job, NotConnected("gone before the job was sent"))

    def cancel(self, id: str, done: Done) -> None:
        """Cancel a job where it is pending, else where new jobs would go."""
        self._ask(id, done, lambda session: session.cancel(id, done))

    def change(self, id: str, fields: Mapping[str, object], done: Done) -> None:
        """Change a job where it is pending, else where new jobs would go."""
        self._ask(id, done, lambda session: session.change(id, fields, done))

    def ping(self, done: Done) -> None:
        """Ask the broker for a sign of life."""
        self._ask("", done, lambda session: session.ping(done))

    def _ask(self, id: str, done: Done, ask: Callable[[Session], None]) -> None:
        session = next((s for s in self._sessions if id in s.jobs), self._current)
        if session is not None:
            ask(session)
        elif any(job.id == id for job in self._kept):
            self._asked.append((done, ask))
        else:
            done(NotConnected("no connection to a broker"))

    async def close(self) -> None:
        """Drop all connections; what is pending fails with a LostError whose
        cause is a ClosedError."""
        self._closed = True
        lost = [session.link.lost for session in self._sessions]
        for session in list(self._sessions):
            session.link.abort(ClosedError("closed"))
        if lost:
            await asyncio.wait(lost)
        self._drop_kept(ClosedError("closed"))
