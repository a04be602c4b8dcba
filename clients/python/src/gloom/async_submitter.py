"""The submitter for asyncio."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Generator, Optional

from ._demux import Done
from ._gate import AsyncGate
from ._loop import within
from ._session import Connector, start
from ._submit import JobBase, OnProgress, SubmitterBase, check_size, encode
from .errors import Cancelled, Unsupported
from .wire import Message, check_name

__all__ = ["AsyncPending", "AsyncSubmitter"]


class AsyncPending(JobBase):
    """A job that was submitted and may not have ended.

    Awaiting it gives the answer's body, None for a detached job, or raises a
    RefusedError, a JobError or a LostError.  It may be awaited repeatedly and
    by several tasks; cancelling such a task leaves the job alone.
    """

    def __init__(
        self,
        submitter: "AsyncSubmitter",
        id: str,
        type: Optional[str],
        detach: bool,
        ack: bool,
        raw: bool,
        on_progress: Optional[OnProgress],
    ) -> None:
        super().__init__(id, type, detach, ack, raw, on_progress)
        loop = asyncio.get_running_loop()
        self._submitter = submitter
        self._end: "asyncio.Future[Any]" = loop.create_future()
        self._reply: "Optional[asyncio.Future[None]]" = None

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self._end).__await__()

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._end.done()

    def cancelled(self) -> bool:
        """Whether the job has ended by being cancelled."""
        return self.done() and isinstance(self._end.exception(), Cancelled)

    def exception(self) -> Optional[BaseException]:
        """The error it ended with; InvalidStateError before it has ended."""
        return self._end.exception()

    def result(self) -> Any:
        """The body, or raises the error; InvalidStateError before the end."""
        return self._end.result()

    def add_done_callback(
        self, callback: "Callable[[AsyncPending], object]"
    ) -> None:
        """Call back soon after the end, with this object."""
        self._end.add_done_callback(lambda _: callback(self))

    async def ack(self) -> None:
        """Wait until the broker has taken the job; raises the job's error if
        it was not taken.  Of a job with ack=False nothing may be known until
        it ends."""
        if not self.acked and not self.done():
            if self._reply is None:
                self._reply = self._end.get_loop().create_future()
            await asyncio.shield(self._reply)
        if not self.acked:
            error = self._end.exception()
            if error is not None:
                raise error

    def cancel(self) -> bool:
        """Ask the broker to cancel the job; False when it has ended.

        The job then ends with Cancelled or, if the answer was faster, with
        that.  AsyncSubmitter.cancel waits for the broker's word.
        """
        if self.done():
            return False
        self._submitter._ask_cancel(self.id)
        return True

    def _replied(self) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(None)

    def _accepted(self) -> None:
        self._replied()
        if self.detached:
            self._end.set_result(None)

    def _answered(self, message: Message) -> None:
        self._replied()
        self._end.set_result(self._value(message, "body"))

    def _failed(self, error: Exception) -> None:
        self._end.set_exception(error)
        self._end.exception()  # nobody need look at it
        self._replied()


class AsyncSubmitter(SubmitterBase):
    """Hands jobs to a broker over one connection; Submitter's asyncio twin.

    Settings, semantics and errors are those of Submitter.  An object belongs
    to the event loop in which it is first used; connecting begins then.
    Entering an async with block waits for the first attempt and raises
    NotConnected, or the RefusedError of all brokers, when none can be had.
    """

    def _start(self) -> None:
        self._gate = AsyncGate(self._window)
        self._connector = Connector(
            self._options,
            self._gate.leave,
            self._gate.change,
            self._gate.writable,
        )
        self._task: "Optional[asyncio.Task[None]]" = None

    def _begin(self) -> None:
        if self._task is None:
            self._task = start(self._connector.run())

    async def connect(self, wait: Optional[float] = None) -> None:
        """Wait until connected; as Submitter.connect."""
        self._begin()
        await self._gate.connected(wait)

    async def __aenter__(self) -> "AsyncSubmitter":
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def submit(
        self,
        type: Optional[str],
        body: object = None,
        *,
        id: Optional[str] = None,
        priority: int = 0,
        delay: float = 0,
        timeout: float = 0,
        retries: Optional[int] = None,
        backoff: float = 0,
        expires: float = 0,
        detach: bool = False,
        ack: bool = True,
        on_progress: Optional[OnProgress] = None,
        raw: Optional[bool] = None,
        wait: Optional[float] = None,
    ) -> AsyncPending:
        """Hand a job in; returns as soon as it is on its way.

        Arguments and errors are those of Submitter.submit.
        """
        self._begin()
        if id is None:
            id = self._new_id()
        frame = encode(
            self._options.compat,
            id,
            type,
            body,
            priority,
            delay,
            timeout,
            retries,
            backoff,
            expires,
            detach,
            ack,
            on_progress is not None,
        )
        await self._gate.enter(wait)
        try:
            check_size(id, frame, self._connector.max_frame)
        except BaseException:
            self._gate.leave()
            raise
        pending = AsyncPending(
            self,
            id,
            type,
            detach,
            ack,
            self._raw if raw is None else raw,
            on_progress,
        )
        self._connector.submit(pending, frame)
        return pending

    async def do(
        self,
        type: Optional[str],
        body: object = None,
        *,
        id: Optional[str] = None,
        priority: int = 0,
        delay: float = 0,
        timeout: float = 0,
        retries: Optional[int] = None,
        backoff: float = 0,
        expires: float = 0,
        ack: bool = True,
        on_progress: Optional[OnProgress] = None,
        raw: Optional[bool] = None,
        wait: Optional[float] = None,
    ) -> Any:
        """Submit a job and return its result; the arguments are submit's.

        When wait seconds have passed, or the task is cancelled, the broker is
        asked to cancel the job; whether it was cancelled in time is not told.
        Raises submit's errors, the job's, and asyncio.TimeoutError.
        """
        loop = asyncio.get_running_loop()
        until = None if wait is None else loop.time() + wait
        pending = await self.submit(
            type,
            body,
            id=id,
            priority=priority,
            delay=delay,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            expires=expires,
            ack=ack,
            on_progress=on_progress,
            raw=raw,
            wait=wait,
        )
        try:
            left = None if until is None else max(0.0, until - loop.time())
            return await within(asyncio.shield(pending._end), left)
        finally:
            if not pending.done() and not self._options.compat:
                pending.cancel()

    async def cancel(self, id: str) -> None:
        """Have the broker cancel a job: one of this submitter's, which then
        ends with Cancelled, or anybody's detached one.

        Raises UnknownID when the job had ended, its answer having won, or was
        never there; LostError, NotConnected, Unsupported.
        """
        reply, done = _reply()
        self._ask_cancel(id, done)
        await reply

    async def ping(self) -> None:
        """Ask the broker for a sign of life; errors as of cancel."""
        if self._options.compat:
            raise Unsupported("ping is not known to a compat broker")
        self._begin()
        reply, done = _reply()
        self._connector.ping(done)
        await reply

    def _ask_cancel(self, id: str, done: Done = lambda _: None) -> None:
        if self._options.compat:
            raise Unsupported("cancel is not known to a compat broker")
        check_name("id", id)
        self._begin()
        self._connector.cancel(id, done)

    @property
    def outstanding(self) -> int:
        """Jobs submitted and not ended."""
        return self._gate.outstanding

    async def drain(self, wait: Optional[float] = None) -> None:
        """Take no more jobs, wait for the outstanding ones to end, and close.

        After wait seconds it closes at once and raises asyncio.TimeoutError.
        """
        self._gate.close()
        try:
            if not await self._gate.empty(wait):
                raise asyncio.TimeoutError(
                    f"{self.outstanding} jobs outstanding after {wait} s"
                )
        finally:
            await self.close()

    async def close(self) -> None:
        """Close at once.  Jobs still pending fail with a LostError whose
        cause is a ClosedError.  May be called repeatedly."""
        self._gate.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            await self._connector.close()


def _reply() -> "tuple[asyncio.Future[None], Done]":
    reply: "asyncio.Future[None]" = (
        asyncio.get_running_loop().create_future()
    )

    def done(error: Optional[Exception]) -> None:
        if reply.done():  # the task that asked was cancelled
            return
        if error is None:
            reply.set_result(None)
        else:
            reply.set_exception(error)

    return reply, done
