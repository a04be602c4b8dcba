"""A worker's connection: what is out on it, and how it is answered."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, NamedTuple

from . import errors, wire
from ._link import Link
from ._options import Options, logger
from .body import encode_body
from .errors import ClosedError, GloomError, LostError, ProtocolError
from .failure import Outcome, fatal, refused
from .job import JobBase
from .wire import Message

#: Progress frames that may be unanswered on a socket.
MAX_REPORTS = 64


class Service(NamedTuple):
    """What a socket serves."""

    #: The frame that joins.
    join: bytes
    #: Jobs that may be out on a socket which names them; 0 for one that does not.
    prefetch: int
    #: Runs that may be executed at once; others wait.
    handlers: int
    compat: bool
    #: Bodies are RawJSON.
    raw: bool
    #: Makes what the handler receives, for one run.
    kind: Callable[[str, str, Any, "dict[str, Any] | None"], JobBase]
    #: Begins a run, and calls finish of its socket in the loop's thread later.
    start: Callable[[JobBase], None]
    #: Called when a socket has joined, with its broker.
    joined: Callable[[str], None]


class Socket(Link):
    """One connection that has joined, or is joining."""

    def __init__(self, options: Options, addr: str, service: Service) -> None:
        super().__init__(options, addr)
        self._service = service
        # Jobs that are out here; of these some wait, and some run.
        self._runs: dict[str, JobBase] = {}
        self._queue: deque[JobBase] = deque()
        self._running: set[JobBase] = set()
        self._finished = asyncio.Event()  # set when a handler returns
        self._room = asyncio.Semaphore(MAX_REPORTS)
        self._leaving = False
        self._left = False
        #: Whether the broker hands out jobs here.
        self.joined = False

    def leave(self) -> None:
        """Take no more jobs; the connection ends when all is answered."""
        if self._leaving:
            return
        self._leaving = True
        if self._service.compat:
            self._left = True
        else:
            self.ask(wire.request("leave"), self._leave_replied)
            queue, self._queue = self._queue, deque()
            for run in queue:
                self._release(run)
        self.after_read()

    async def serve(self) -> Exception:
        """Join, and serve until the connection is gone; returns why, once the last
        handler has returned: until then its place is taken."""
        self.ask(self._service.join, self._join_replied)
        limit = self._options.dial_timeout
        await asyncio.wait({self.lost}, timeout=limit)
        if not self.joined:
            self.abort(TimeoutError(f"no answer to join within {limit:g} s"))
        cause = await asyncio.shield(self.lost)
        cause = self.refusal or cause
        self.abandon(LostError(cause, self.addr))
        while self._running:
            self._finished.clear()
            await self._finished.wait()
        return cause

    def abandon(self, cause: GloomError) -> None:
        """Nobody waits for any of the runs any more."""
        self._queue.clear()
        self._runs.clear()
        for run in list(self._running):
            run._end(cause)
        self._room.release()  # those who wait there pass it on

    def after_read(self) -> None:
        if self._left and not self._runs and not self.awaited:
            self.close(ClosedError("left"))

    # What the broker says.

    def on_message(self, message: Message) -> None:
        if message.kind == wire.JOB:
            self._take(message)
        elif message.kind == wire.CANCEL:
            run = self._runs.get(message.id or "")
            if run is not None:
                run._end(errors.Cancelled("nobody waits for the run", run.id))

    def _take(self, message: Message) -> None:
        id = message.string("id")
        if self._left:
            if self._service.compat:  # the broker hands the job to another worker
                self.abort(ClosedError("left"))
                return
            raise ProtocolError("a job after the ok of leave")
        if not self.joined:
            raise ProtocolError("a job before the ok of join")
        if len(self._runs) >= max(self._service.prefetch, 1):
            raise ProtocolError(
                f"a job while {len(self._runs)} are out, the most asked for"
            )
        if id in self._runs:
            raise ProtocolError(f"job {id!r}, which is out already")
        body = message.raw("body") if self._service.raw else message.get("body")
        run = self._service.kind(id, message.get("type"), body, message.get("headers"))
        run._socket = self
        self._runs[id] = run
        if self._leaving and not self._service.compat:  # it crossed our leave
            self._release(run)
            return
        self._queue.append(run)
        self._start_next()

    def _release(self, run: JobBase) -> None:
        """Give a job back that was not begun."""
        del self._runs[run.id]

        def replied(error: Exception | None) -> None:
            if isinstance(error, errors.UnknownAction):
                # An older broker waits for an answer.
                self._runs[run.id] = run
                self._queue.append(run)
                self._start_next()

        frame = wire.request("release", id=self._name(run))
        self.ask(frame, replied)

    def _join_replied(self, error: Exception | None) -> None:
        if error is not None:
            raise error
        self.joined = True
        self._service.joined(self.addr)

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

    def finish(self, run: JobBase, outcome: Outcome) -> None:
        """A handler has returned: answer, and begin the next run."""
        if outcome.trace and run.cause is None:
            what = f"job {run.id!r} of type {run.type!r}"
            logger.error("%s failed\n%s", what, outcome.trace)
        self._running.discard(run)
        self._send_answer(run, outcome)
        self._start_next()
        self._finished.set()

    def _send_answer(self, run: JobBase, outcome: Outcome) -> None:
        if self._runs.get(run.id) is not run:
            return
        del self._runs[run.id]

        def substituted(error: Exception | None) -> None:
            if error is not None:
                raise error  # the job hangs here: let the broker have it back

        def replied(error: Exception | None) -> None:
            # Else the broker changed nothing: the job is still out on this socket.
            late = (errors.InvalidState, errors.UnknownID)
            if error is not None and not isinstance(error, late):
                frame = self._encode(run, refused(outcome, error))
                self.ask(frame, substituted)

        self.ask(self._encode(run, outcome), replied)

    def _encode(self, run: JobBase, outcome: Outcome) -> bytes:
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

    def _name(self, run: JobBase) -> str | None:
        return run.id if self._service.prefetch else None

    def _too_large(self, frame: bytes) -> str | None:
        size = len(frame) - wire.HEADER_LEN
        if size <= self.max_frame:
            return None
        return f"frame of {size} bytes, at most {self.max_frame} are taken"

    async def report(self, run: JobBase, body: bytes) -> None:
        """Send progress of a run, when there is room for another one."""
        if self._service.compat:
            raise errors.Unsupported("progress is not known to a compat broker")
        frame = wire.request("progress", id=self._name(run), body=body)
        too_large = self._too_large(frame)
        if too_large is not None:
            raise errors.SizeError(too_large, run.id)
        await self._room.acquire()
        if self._runs.get(run.id) is run and run.cause is None:
            self.ask(frame, lambda _: self._room.release())
            return
        self._room.release()
        if run.cause is not None:
            raise errors.again(run.cause)
        raise RuntimeError(f"job {run.id!r} has been answered")
