"""A worker's connection: what is out on it, and how it is answered."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, NamedTuple

from . import wire
from ._link import Link
from ._options import logger
from .body import encode_body
from .errors import (
    BrokerError,
    Cancelled,
    ClosedError,
    GloomError,
    InvalidState,
    LostError,
    ProtocolError,
    SizeError,
    Unauthorized,
    UnknownAction,
    UnknownID,
    Unsupported,
    again,
)
from .failure import Outcome, fatal, refused
from .wire import Message

#: Progress frames that may be unanswered on a socket.
MAX_REPORTS = 64


class Run:
    """One execution of a job.  Belongs to the event loop's thread."""

    def __init__(self, socket: Socket, id: str, message: Message) -> None:
        self.socket = socket
        self.id = id
        self.message = message
        #: Why nobody waits for this run any more: a Cancelled, a LostError
        #: or a ClosedError.
        self.cause: GloomError | None = None
        #: Told the cause, once the handler has been started.
        self.on_unwanted: Callable[[GloomError], None] | None = None

    def told(self, raw: bool) -> tuple[str, str, Any, dict[str, Any] | None]:
        """The job's id, type, body and headers."""
        said = self.message
        body = said.raw("body") if raw else said.get("body")
        return self.id, said.get("type"), body, said.get("headers")

    def unwanted(self, cause: GloomError) -> None:
        """Nobody waits for the run any more; the first cause stays."""
        if self.cause is None:
            self.cause = cause
            if self.on_unwanted is not None:
                self.on_unwanted(cause)

    def finish(self, outcome: Outcome) -> None:
        """The handler has returned."""
        if outcome.trace and self.cause is None:
            type = self.message.get("type")
            logger.error("job %r of type %r failed\n%s", self.id, type, outcome.trace)
        self.socket.finish(self, outcome)

    async def report(self, body: bytes) -> None:
        """Send progress; raises the cause when nobody waits any more."""
        await self.socket.report(self, body)


class Service(NamedTuple):
    """What a socket serves."""

    #: The frame that joins.
    join: bytes
    #: Jobs that may be out on a socket which names them; 0 for one that does not.
    prefetch: int
    #: Runs that may be executed at once; others wait.
    handlers: int
    compat: bool
    #: Begins a run, and calls its finish in the loop's thread later.
    start: Callable[[Run], None]


class Socket:
    """One connection that has joined, or is joining."""

    def __init__(
        self, link: Link, service: Service, on_joined: Callable[[], None]
    ) -> None:
        self.link = link
        self._service = service
        self._on_joined = on_joined
        self._runs: dict[str, Run] = {}
        self._queue: deque[Run] = deque()
        self._running: set[Run] = set()
        self._reports = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._leaving = False
        self._left = False
        self.joined = False
        link.on_message = self._news
        link.on_error = self._error
        link.after_read = self._close_if_done

    def join(self) -> None:
        """Ask for jobs."""
        self.link.ask(self._service.join, self._join_replied)

    def leave(self) -> None:
        """Take no more jobs; the connection ends when all is answered."""
        if self._leaving:
            return
        self._leaving = True
        if self._service.compat:
            self._left = True
        else:
            self.link.ask(wire.request("leave"), self._leave_replied)
            queue, self._queue = self._queue, deque()
            for run in queue:
                self._release(run)
        self._close_if_done()

    async def serve(self) -> Exception:
        """Serve until the connection is gone; returns why, once the last
        handler has returned: until then its place is taken."""
        cause = await asyncio.shield(self.link.lost)
        cause = self.link.refusal or cause
        self.abandon(LostError(cause, self.link.addr))
        if self._running:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        return cause

    def abandon(self, cause: GloomError) -> None:
        """Nobody waits for any of the runs any more."""
        self._queue.clear()
        self._runs.clear()
        for run in list(self._running):
            run.unwanted(cause)
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)

    def _close_if_done(self) -> None:
        if self._left and not self._runs and not self.link.awaited:
            self.link.close(ClosedError("left"))

    # What the broker says.

    def _news(self, message: Message) -> None:
        if message.kind == wire.JOB:
            self._job(message)
        elif message.kind == wire.CANCEL:
            run = self._runs.get(message.id or "")
            if run is not None:
                run.unwanted(Cancelled("nobody waits for the run", run.id))

    def _job(self, message: Message) -> None:
        id = message.id
        assert id is not None
        if self._left:
            if self._service.compat:  # the broker hands the job to another worker
                self.link.abort(ClosedError("left"))
                return
            raise ProtocolError("a job after the ok of leave")
        if len(self._runs) >= max(self._service.prefetch, 1):
            raise ProtocolError(
                f"a job while {len(self._runs)} are out, the most asked for"
            )
        if id in self._runs:
            raise ProtocolError(f"job {id!r}, which is out already")
        run = Run(self, id, message)
        self._runs[id] = run
        if self._leaving and not self._service.compat:  # it crossed our leave
            self._release(run)
            return
        self._queue.append(run)
        self._start_next()

    def _release(self, run: Run) -> None:
        """Give a job back that was not begun."""
        del self._runs[run.id]

        def replied(error: Exception | None) -> None:
            if isinstance(error, UnknownAction):  # an older broker waits for an answer
                self._runs[run.id] = run
                self._queue.append(run)
                self._start_next()

        frame = wire.request("release", id=self._name(run))
        self.link.ask(frame, replied)

    def _error(self, error: BrokerError) -> None:
        if isinstance(error, (SizeError, Unauthorized)):
            self.link.refusal = error
        self.link.refuse(error)

    def _join_replied(self, error: Exception | None) -> None:
        if error is not None:
            raise error
        self.joined = True
        self._on_joined()

    def _leave_replied(self, error: Exception | None) -> None:
        self._left = True  # when it cannot: close once nothing is out

    # What handlers do.

    def _start_next(self) -> None:
        while self._queue and len(self._running) < self._service.handlers:
            run = self._queue.popleft()
            if run.cause is not None:  # cancelled while it waited
                self._send_answer(run, Outcome(reason="cancelled"))
                continue
            self._running.add(run)
            self._service.start(run)

    def finish(self, run: Run, outcome: Outcome) -> None:
        """A handler has returned: answer, and begin the next run."""
        self._running.discard(run)
        self._send_answer(run, outcome)
        self._start_next()
        if self._idle is not None and not self._running:
            if not self._idle.done():
                self._idle.set_result(None)

    def _send_answer(self, run: Run, outcome: Outcome) -> None:
        if self._runs.get(run.id) is not run:
            return
        del self._runs[run.id]

        def substituted(error: Exception | None) -> None:
            if error is not None:
                raise error  # the job hangs here: let the broker have it back

        def replied(error: Exception | None) -> None:
            # Else the broker changed nothing: the job is still out on this socket.
            if error is not None and not isinstance(error, (InvalidState, UnknownID)):
                frame = self._encode(run, refused(outcome, error))
                self.link.ask(frame, substituted)

        self.link.ask(self._encode(run, outcome), replied)

    def _encode(self, run: Run, outcome: Outcome) -> bytes:
        id = self._name(run)
        if outcome.body is not None:
            frame = wire.request("respond", id=id, body=outcome.body)
            too_large = self._too_large(frame)
            if too_large is None:
                return frame
            outcome = fatal(f"answer makes a {too_large}")
        if self._service.compat:
            return wire.request("respond", body=encode_body({"error": outcome.reason}))
        if outcome.release:
            return wire.request("release", id=id, delay_ms=outcome.delay_ms)
        return wire.request(
            "fail",
            id=id,
            reason=outcome.reason,
            retry=None if outcome.retry else False,
            delay_ms=outcome.delay_ms,
        )

    def _name(self, run: Run) -> str | None:
        return run.id if self._service.prefetch else None

    def _too_large(self, frame: bytes) -> str | None:
        size = len(frame) - wire.HEADER_LEN
        if size <= self.link.max_frame:
            return None
        return f"frame of {size} bytes, at most {self.link.max_frame} are taken"

    async def report(self, run: Run, body: bytes) -> None:
        """Send progress of a run, when there is room for another one."""
        if self._service.compat:
            raise Unsupported("progress is not known to a compat broker")
        frame = wire.request("progress", id=self._name(run), body=body)
        too_large = self._too_large(frame)
        if too_large is not None:
            raise SizeError(too_large, run.id)
        while run.cause is None and self._reports >= MAX_REPORTS:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._room:
                    self._room.remove(waiter)
        if run.cause is not None:
            raise again(run.cause)
        if self._runs.get(run.id) is not run:
            raise RuntimeError(f"job {run.id!r} has been answered")
        self._reports += 1
        self.link.ask(frame, self._reported)

    def _reported(self, error: Exception | None) -> None:
        self._reports -= 1
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
