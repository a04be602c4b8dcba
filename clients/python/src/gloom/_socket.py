"""A worker's connection: what is out on it, and the replies it waits for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Callable, Deque, Dict, Optional, Set, Tuple

from . import wire
from ._link import Link
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
    UnknownID,
    Unsupported,
    again,
    from_code,
)
from .failure import Outcome, fatal, refused
from .wire import Message

#: Progress frames that may be unanswered on a socket.
MAX_REPORTS = 64

_TO_JOIN, _TO_ANSWER, _TO_SUBSTITUTE, _TO_REPORT, _TO_LEAVE = range(5)

_Reply = Tuple[int, Optional["Run"], Optional[Outcome]]


class Run:
    """One execution of a job.  Belongs to the event loop's thread."""

    def __init__(self, socket: "Socket", id: str, message: Message) -> None:
        self.socket = socket
        self.id = id
        self.message = message
        #: Why nobody waits for this run any more: a Cancelled, a LostError
        #: or a ClosedError.
        self.cause: Optional[GloomError] = None
        #: Told the cause, once the handler has been started.
        self.on_unwanted: Optional[Callable[[GloomError], None]] = None

    def unwanted(self, cause: GloomError) -> None:
        """Nobody waits for the run any more; the first cause stays."""
        if self.cause is None:
            self.cause = cause
            if self.on_unwanted is not None:
                self.on_unwanted(cause)

    def finish(self, outcome: Outcome) -> None:
        """The handler has returned."""
        self.socket.finish(self, outcome)

    async def report(self, body: bytes) -> None:
        """Send progress; raises the cause when nobody waits any more."""
        await self.socket.report(self, body)


class Socket:
    """One connection that has joined, or is joining, a type.

    named: it joins with prefetch, so answers carry ids.  limit: runs that may
    be out.  handlers: runs that may be executed at once; others wait.
    """

    def __init__(
        self,
        link: Link,
        start: Callable[[Run], None],
        joined: Callable[[], None],
        type: str,
        prefetch: int,
        handlers: int,
        compat: bool,
    ) -> None:
        self.link = link
        self._start = start
        self._on_joined = joined
        self._type = type
        self._prefetch = prefetch
        self._limit = max(prefetch, 1)
        self._handlers = handlers
        self._compat = compat
        self._replies: Deque[_Reply] = deque()
        self._runs: Dict[str, Run] = {}
        self._queue: Deque[Run] = deque()
        self._running: Set[Run] = set()
        self._reports = 0
        self._room: "Deque[asyncio.Future[None]]" = deque()
        self._idle: "Optional[asyncio.Future[None]]" = None
        self._leaving = False
        self._left = False
        #: What the broker said before it closes.
        self._refusal: Optional[BrokerError] = None
        self.joined = False
        link.receive = self._receive

    def join(self) -> None:
        """Ask for jobs."""
        self._ask(
            wire.join(
                self._type,
                self._prefetch or None,
                None if self._compat else True,
            ),
            _TO_JOIN,
        )

    def leave(self) -> None:
        """Take no more jobs; the connection ends when all is answered."""
        if self._leaving:
            return
        self._leaving = True
        if self._compat:
            self._left = True
        else:
            self._ask(wire.LEAVE, _TO_LEAVE)
        self._close_if_done()

    async def serve(self) -> Exception:
        """Serve until the connection is gone; returns why, once the last
        handler has returned: until then its place is taken."""
        cause = await asyncio.shield(self.link.lost)
        cause = self._refusal or cause
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

    def _ask(
        self,
        frame: bytes,
        kind: int,
        run: Optional[Run] = None,
        outcome: Optional[Outcome] = None,
    ) -> None:
        self._replies.append((kind, run, outcome))
        self.link.send(frame)

    def _close_if_done(self) -> None:
        if self._left and not self._runs and not self._replies:
            self.link.close(ClosedError("left"))

    # What the broker says.

    def _receive(self, message: Message) -> None:
        kind = message.kind
        if kind == wire.JOB:
            self._job(message)
        elif kind == wire.OK:
            self._ok()
        elif kind == wire.ERROR:
            self._error(message)
        elif kind == wire.CANCEL:
            run = self._runs.get(message.id or "")
            if run is not None:
                run.unwanted(Cancelled("nobody waits for the run", run.id))

    def _job(self, message: Message) -> None:
        id = message.id
        assert id is not None
        if self._left:
            if self._compat:  # the broker hands the job to another worker
                self.link.abort(ClosedError("left"))
                return
            raise ProtocolError("a job after the ok of leave")
        if len(self._runs) >= self._limit:
            raise ProtocolError(
                f"a job while {len(self._runs)} are out, the most asked for"
            )
        if id in self._runs:
            raise ProtocolError(f"job {id!r}, which is out already")
        run = Run(self, id, message)
        self._runs[id] = run
        self._queue.append(run)
        self._start_next()

    def _ok(self) -> None:
        if not self._replies:
            raise ProtocolError("an ok that nothing asked for")
        kind, _, _ = self._replies.popleft()
        if kind == _TO_JOIN:
            self.joined = True
            self._on_joined()
        elif kind == _TO_LEAVE:
            self._left = True
        elif kind == _TO_REPORT:
            self._reported()
        self._close_if_done()

    def _error(self, message: Message) -> None:
        refusal = from_code(
            message.get("error"), message.get("reason"), message.id
        )
        if not self._replies:
            raise refusal
        kind, run, outcome = self._replies.popleft()
        if kind == _TO_JOIN:
            raise refusal
        if kind == _TO_REPORT:
            self._reported()
        elif kind == _TO_LEAVE:
            self._left = True  # it cannot: close once nothing is out
        if isinstance(refusal, (SizeError, Unauthorized)):
            self._refusal = refusal
        if kind == _TO_SUBSTITUTE:
            raise refusal  # the job hangs here: let the broker have it back
        if kind == _TO_ANSWER and not isinstance(
            refusal, (InvalidState, UnknownID)
        ):
            # The broker changed nothing: the job is still out on this socket.
            assert run is not None and outcome is not None
            self._answer(run, refused(outcome, refusal), _TO_SUBSTITUTE)
        self._close_if_done()

    # What handlers do.

    def _start_next(self) -> None:
        while self._queue and len(self._running) < self._handlers:
            run = self._queue.popleft()
            if run.cause is not None:  # cancelled while it waited
                self._send_answer(run, Outcome(reason="cancelled"))
                continue
            self._running.add(run)
            self._start(run)

    def finish(self, run: Run, outcome: Outcome) -> None:
        """A handler has returned: answer, and begin the next run."""
        self._running.discard(run)
        self._send_answer(run, outcome)
        self._start_next()
        if self._idle is not None and not self._running:
            if not self._idle.done():
                self._idle.set_result(None)

    def _send_answer(self, run: Run, outcome: Outcome) -> None:
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._answer(run, outcome, _TO_ANSWER)

    def _answer(self, run: Run, outcome: Outcome, kind: int) -> None:
        frame = self._encode(run, outcome)
        size = len(frame) - wire.HEADER_LEN
        if size > self.link.max_frame:
            outcome = fatal(
                f"answer makes a frame of {size} bytes, "
                f"at most {self.link.max_frame} are taken"
            )
            frame = self._encode(run, outcome)
        self._ask(frame, kind, run, outcome)

    def _encode(self, run: Run, outcome: Outcome) -> bytes:
        id = run.id if self._prefetch else None
        if outcome.body is not None:
            return wire.respond(id, outcome.body)
        if self._compat:
            return wire.respond(
                None, encode_body({"error": outcome.reason})
            )
        return wire.fail(
            id, outcome.reason, outcome.retry and None, outcome.delay_ms
        )

    async def report(self, run: Run, body: bytes) -> None:
        """Send progress of a run, when there is room for another one."""
        if self._compat:
            raise Unsupported("progress is not known to a compat broker")
        frame = wire.progress(run.id if self._prefetch else None, body)
        size = len(frame) - wire.HEADER_LEN
        if size > self.link.max_frame:
            raise SizeError(
                f"frame of {size} bytes, at most {self.link.max_frame} are taken",
                run.id,
            )
        while run.cause is None and self._reports >= MAX_REPORTS:
            waiter: "asyncio.Future[None]" = (
                asyncio.get_running_loop().create_future()
            )
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
        self._ask(frame, _TO_REPORT)

    def _reported(self) -> None:
        self._reports -= 1
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
