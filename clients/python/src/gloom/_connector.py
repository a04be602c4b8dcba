"""A submitter's connection to one of several brokers, reestablished when lost."""

from __future__ import annotations

import asyncio
import time
from typing import Mapping

from ._backoff import Backoff, hopeless
from ._gate import Gate
from ._link import Link
from ._loop import start
from ._options import Event, Notice, Options
from ._replies import Done, Jobs
from .errors import ClosedError, GloomError, LostError, NotConnected, RefusedError
from .pending import PendingJob


class Session(Jobs, Link):
    """One connection, and the jobs and requests pending on it."""

    def __init__(self, options: Options, addr: str, gate: Gate) -> None:
        super().__init__(options, addr)
        self._gate = gate
        self.over = asyncio.Event()  # set when it is lost, or the broker is stopping
        self._retired = False

    def freed(self) -> None:
        self._gate.leave()

    def before_flush(self) -> None:
        self.confirm()

    def after_read(self) -> None:
        if self.draining:
            self.over.set()
        if self._retired and self.idle:
            self.close(ClosedError("nothing pending"))

    def on_writable(self) -> None:
        self._gate.wake()

    def retire(self) -> None:
        """Close as soon as nothing is pending."""
        self._retired = True
        self.after_read()


class Connector:
    """Keeps a session with one of the brokers while it serves, then with the next
    one that does, and sends the jobs that the gate admits. It must be used only in the
    event loop's thread.

    It tells the gate which connection takes new jobs or, after an attempt at every
    broker has failed, why there is none: a RefusedError when all refuse
    permanently, else NotConnected.
    """

    def __init__(self, options: Options, gate: Gate) -> None:
        self._options = options
        self._gate = gate
        self._next = 0
        self._sessions: set[Session] = set()
        # Kept jobs of the last session, which was lost, and the address of its broker.
        self._kept: list[PendingJob] = []
        self._kept_at = ""
        # Requests about these jobs that were made since then.
        self._asked: list[tuple[str, str, Mapping[str, object], Done]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Connect, and reconnect until closed."""
        if self._task is None and not self._closed:
            self._task = start(self._run())

    async def _run(self) -> None:
        tell, addrs = self._options.tell, self._options.addrs
        backoff = Backoff(self._options.backoff)
        old: Session | None = None  # the connection that is draining or lost
        since = 0.0  # when it was made
        while True:
            tried = await self._try_all(old)
            if isinstance(tried, Session):
                since = time.monotonic()
                self._adopt(tried)
                if old is not None:
                    old.retire()  # pending jobs stay there
                old = tried
                await old.over.wait()
                patience = 0.0 if len(addrs) > 1 else None
            else:
                if old is None:
                    self._gate.connected(None, tried)
                    if isinstance(tried, RefusedError):
                        self._drop_kept(tried)
                patience = backoff.wait()
                tell(Notice(Event.FAILED, ", ".join(addrs), tried, patience))
                if old is None:
                    await asyncio.sleep(patience)
                    continue
            await asyncio.wait({old.lost}, timeout=patience)
            if old.lost.done():
                backoff.lasted(time.monotonic() - since)
                wait = backoff.wait()
                tell(Notice(Event.LOST, old.addr, old.lost.result(), wait))
                await asyncio.sleep(wait)
                if self._kept:  # the broker still has them
                    self._next = addrs.index(old.addr)
                old = None

    async def _try_all(self, draining: Session | None) -> Session | GloomError:
        """Try each address once, in turn, except the one that is draining.

        Errors are returned, not raised: they reach users, and their tracebacks
        must not expose the frames that continue to run here.
        """
        errors = []
        for _ in self._options.addrs:
            addr = self._options.addrs[self._next % len(self._options.addrs)]
            self._next += 1
            if draining is not None and addr == draining.addr:
                continue
            session = Session(self._options, addr, self._gate)
            try:
                await session.open()
                return session
            except Exception as err:
                errors.append((addr, err.with_traceback(None)))
        if not errors:
            return NotConnected("no broker reached: the only one is draining")
        first = errors[0][1]
        if isinstance(first, RefusedError) and all(hopeless(err) for _, err in errors):
            return first
        told = "; ".join(f"{addr}: {err}" for addr, err in errors)
        error = NotConnected(f"no broker reached: {told}")
        error.__cause__ = first
        return error

    def _adopt(self, session: Session) -> None:
        """Use this connection for new jobs."""
        self._sessions.add(session)
        session.lost.add_done_callback(lambda _: self._gone(session))
        self._options.tell(Notice(Event.CONNECTED, session.addr))
        kept, asked, self._kept, self._asked = self._kept, self._asked, [], []
        for job in kept:
            if job.sent and session.addr != self._kept_at:
                self._drop(job, NotConnected(f"now connected to {session.addr}"))
            else:
                session.go_on(job)
        for request in asked:
            session.request(*request)
        self._kept_at = session.addr
        self._gate.connected(session, None)

    def _gone(self, session: Session) -> None:
        cause, current = session.lost.result(), session is self._gate.session
        if self._closed:
            cause = ClosedError("closed")
        keep = current and not isinstance(cause, ClosedError)
        self._kept += session.lose(cause, keep)
        self._sessions.discard(session)
        if current:
            self._gate.connected(None, None)
        session.over.set()

    def _drop_kept(self, cause: Exception) -> None:
        kept, asked, self._kept, self._asked = self._kept, self._asked, [], []
        for job in kept:
            self._drop(job, cause)
        for *_, done in asked:
            done(cause)

    def _drop(self, job: PendingJob, cause: Exception) -> None:
        self._gate.leave()
        job._failed(LostError(cause, self._kept_at, job.id, job.acked, job.sent))

    # Called by submitters.

    def send(self) -> None:
        """Send the jobs that the gate has admitted, or attach to them.  They fail at
        once if the connection has just been lost."""
        for job in self._gate.take():
            if self._gate.session is not None:
                self._gate.session.submit(job)
            elif job.kept and not self._closed:
                self._kept.append(job)
            else:
                self._drop(job, NotConnected("gone before the job was sent"))

    def ask(
        self, verb: str, id: str | None, fields: Mapping[str, object], done: Done
    ) -> None:
        """Send a request about a job on the connection where it is pending, else on
        the one for new jobs.  A request about a kept job of a lost connection waits
        until that job is attached to."""
        pending = (session for session in self._sessions if id in session.jobs)
        session = next(pending, self._gate.session)
        if session is not None:
            session.request(verb, id, fields, done)
        elif id is not None and any(job.id == id for job in self._kept):
            self._asked.append((verb, id, fields, done))
        else:
            done(NotConnected("no connection to a broker"))

    async def leave(self, wait: float) -> None:
        """Close; if kept jobs are out, first read what the broker has sent, for at most
        wait seconds."""
        await self._stop()
        kept = [s for s in self._sessions if any(j.kept for j in s.jobs.values())]
        for session in kept:
            session.end_output()
        if kept:
            await asyncio.wait([session.lost for session in kept], timeout=wait)
        await self.close()

    async def _stop(self) -> None:
        """Take no more jobs and make no more connections."""
        self._closed = True
        self._gate.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Drop all connections; pending jobs fail with a LostError whose cause is a
        ClosedError."""
        await self._stop()
        lost = [session.lost for session in self._sessions]
        for session in list(self._sessions):
            session.abort(ClosedError("closed"))
        if lost:
            await asyncio.wait(lost)
        self._drop_kept(ClosedError("closed"))
