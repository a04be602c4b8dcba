"""A worker's connection: its jobs, and how they are answered."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from . import errors, wire
from ._link import Link
from ._options import logger
from .errors import GloomError, LostError, ProtocolError
from .job import JobBase, Outcome, failed
from .wire import Message

if TYPE_CHECKING:
    from .worker import AsyncWorker

#: The maximum number of unanswered progress frames on a socket.
MAX_REPORTS = 64

_RELEASE = Outcome("release", {})


def _raise(refusal: Exception | None) -> None:
    """End the connection on a refusal: the broker takes its jobs back."""
    if refusal is not None:
        raise refusal


class Socket(Link):
    """One connection that has joined, or is joining."""

    jobs: dict[str, JobBase]

    def __init__(self, worker: "AsyncWorker", addr: str) -> None:
        super().__init__(worker._options, addr)
        self._worker = worker
        self._handlers = worker._concurrency if worker._prefetch else 1
        self._queue: deque[JobBase] = deque()  # jobs that wait
        self.running: set[JobBase] = set()  # while their handlers run
        self._finished = asyncio.Event()  # set when a handler returns
        self._room = asyncio.Semaphore(MAX_REPORTS)
        self._leaving = False
        self.joined = False  # whether the broker has accepted the join

    def leave(self) -> None:
        """Take no more jobs; the connection ends when all jobs are answered."""
        if self._leaving:
            return
        self._leaving = True
        # It has left, even if the broker replies with an error.
        self.ask(wire.request("leave"), lambda _: self.retire("left"))
        queue, self._queue = self._queue, deque()
        for run in queue:
            self._send_answer(run, _RELEASE, begun=False)

    async def serve(self) -> Exception:
        """Join, and serve until the connection is gone.  Returns the cause once the
        last handler has returned: until then it counts against the concurrency."""
        self.ask(self._worker._join, self._join_replied)
        limit = self._options.dial_timeout
        await asyncio.wait({self.lost}, timeout=limit)
        if not self.joined:
            self.abort(TimeoutError(f"no answer to join within {limit:g} s"))
        cause = await asyncio.shield(self.lost)
        self.abandon(LostError(cause, self.addr))
        while self.running:
            self._finished.clear()
            await self._finished.wait()
        return cause

    def abandon(self, cause: GloomError) -> None:
        """End all runs: nobody waits for them any more."""
        self._queue.clear()
        self.jobs.clear()
        for run in list(self.running):
            run._end(cause)
        self._room.release()  # each waiter passes it on

    # Messages from the broker.

    def on_message(self, message: Message) -> None:
        if message.kind == wire.JOB:
            self._take(message)
        elif message.kind == wire.CANCEL:
            run = self.jobs.get(message.id or "")
            if run is not None:
                run._end(errors.Cancelled("nobody waits for the run", run.id))

    def _take(self, message: Message) -> None:
        id = message.string("id")
        for wrong, when in (
            (self._retired, "after the ok of leave"),
            (not self.joined, "before the ok of join"),
            (len(self.jobs) >= max(self._worker._prefetch, 1), "beyond the prefetch"),
            (id in self.jobs, "sent twice"),
        ):
            if wrong:
                raise ProtocolError(f"job {id!r} {when}")
        body = message.raw("body") if self._worker._raw else message.get("body")
        run = self._worker._kind(id, message.get("type"), body, message.get("headers"))
        run._socket = self
        self.jobs[id] = run
        if self._leaving:  # it crossed our leave
            self._send_answer(run, _RELEASE, begun=False)
        else:
            self._queue.append(run)
            self._start_next()

    def _join_replied(self, error: Exception | None) -> None:
        _raise(error)
        self.joined = True
        self._worker._on_joined(self.addr)

    # Runs and their answers.

    def _start_next(self) -> None:
        while self._queue and len(self.running) < self._handlers:
            run = self._queue.popleft()
            if run.cause is not None:  # cancelled while it waited
                self._send_answer(run, failed("cancelled"))
                continue
            self.running.add(run)
            self._worker._start_run(run)

    def finish(self, run: JobBase, outcome: Outcome) -> None:
        """Answer a run whose handler has returned, and start the next one."""
        if outcome.trace and run.cause is None:
            what = f"job {run.id!r} of type {run.type!r}"
            logger.error("%s failed\n%s", what, outcome.trace)
        self.running.discard(run)
        self._send_answer(run, outcome)
        self._start_next()
        self._finished.set()

    def _send_answer(self, run: JobBase, outcome: Outcome, begun: bool = True) -> None:
        if self.jobs.get(run.id) is not run:
            return
        del self.jobs[run.id]

        def replied(error: Exception | None) -> None:
            late = (errors.InvalidState, errors.UnknownID)
            # After any error but these, the job is still on this socket.
            if error is None or isinstance(error, late):
                return
            if begun:
                retry = False if outcome.verb == "respond" else None
                instead = failed(f"answer {error}", retry=retry)
                self.ask(self._encode(run, instead), _raise)
            else:  # it cannot be given back, so it must run
                self.jobs[run.id] = run
                self._queue.append(run)
                self._start_next()

        self.ask(self._encode(run, outcome), replied)

    def _encode(self, run: JobBase, outcome: Outcome) -> bytes:
        frame = wire.request(outcome.verb, id=self._name(run), **outcome.fields)
        try:
            if outcome.verb == "respond":
                wire.check_size(frame, self.max_frame, run.id)
        except errors.SizeError as err:
            return self._encode(run, failed(f"answer makes a {err.reason}", retry=False))
        return frame

    def _name(self, run: JobBase) -> str | None:
        return run.id if self._worker._prefetch else None

    async def report(self, run: JobBase, body: bytes) -> None:
        """Send progress of a run, as soon as fewer than MAX_REPORTS are unanswered."""
        frame = wire.request("progress", id=self._name(run), body=body)
        wire.check_size(frame, self.max_frame, run.id)
        await self._room.acquire()
        if self.jobs.get(run.id) is run and run.cause is None:
            self.ask(frame, lambda _: self._room.release())
            return
        self._room.release()
        if run.cause is not None:
            raise errors.fresh_copy(run.cause)
        raise RuntimeError(f"job {run.id!r} has been answered")
