"""The submitter for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from typing import TYPE_CHECKING, Any, Mapping, Sequence, TypeVar

from . import wire
from ._connector import Connector
from ._gate import Gate
from ._loop import start, within
from ._options import Options, Settings, integer, millis
from .errors import Unsupported
from .job_options import PRIORITIES, JobOptions, OnProgress, encode_submit
from .pending import AsyncPending, PendingJob
from .wire import check_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

J = TypeVar("J", bound=PendingJob)


class AsyncSubmitter:
    """Hands jobs to a broker over one connection; Submitter's asyncio twin.

    Settings, semantics and errors are those of Submitter.  An object belongs
    to the event loop in which it is first used; connecting begins then.
    Entering an async with block waits for the first attempt and raises
    NotConnected, or the RefusedError of all brokers, when none can be had.
    """

    def __init__(
        self,
        *addrs: str,
        window: int = 1024,
        raw: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        if window < 1:
            raise ValueError(f"window {window}: must be at least 1")
        self._options = Options(addrs, "submit", 9998, **settings)
        self._raw = raw
        self._prefix = secrets.token_hex(6) + "-"
        self._numbers = itertools.count(1)
        self._gate = Gate(window)
        self._connector = Connector(self._options, self._gate)
        self._task: asyncio.Task[None] | None = None

    def _begin(self) -> None:
        if self._task is None:
            self._task = start(self._connector.run())

    async def connect(self, wait: float | None = None) -> None:
        """Wait until connected; as Submitter.connect."""
        self._begin()
        patient = wait is not None
        await self._gate.wait_async(lambda: self._gate.ready(patient), wait)

    async def __aenter__(self) -> AsyncSubmitter:
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
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncPending:
        """Hand a job in; returns as soon as it is on its way.

        Arguments and errors are those of Submitter.submit.
        """
        self._begin()
        pending = self._make(AsyncPending, self, type, body, options)
        return await self._send(pending, wait)

    async def attach(
        self,
        id: str,
        *,
        on_progress: OnProgress | None = None,
        raw: bool | None = None,
        wait: float | None = None,
    ) -> AsyncPending:
        """Have a kept job's outcome come here; as Submitter.attach."""
        self._begin()
        pending = self._make_attach(AsyncPending, self, id, on_progress, raw)
        return await self._send(pending, wait)

    async def _send(self, pending: AsyncPending, wait: float | None) -> AsyncPending:
        await self._gate.wait_async(lambda: self._gate.enter(pending), wait)
        self._connector.send()
        return pending

    async def do(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Submit a job and return its result; the arguments are submit's.

        When wait seconds have passed, or the task is cancelled, the broker is
        asked to cancel the job; whether it was cancelled in time is not told.
        Raises submit's errors, the job's, and asyncio.TimeoutError.
        """
        loop = asyncio.get_running_loop()
        until = None if wait is None else loop.time() + wait
        pending = await self.submit(type, body, wait=wait, **options)
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
        await self._ask("cancel", id)

    async def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        groups: Sequence[str] | None = None,
        delay: float | None = None,
    ) -> None:
        """Change a job that waits; as Submitter.change."""
        fields = {
            "priority": None
            if priority is None
            else integer("priority", priority, *PRIORITIES),
            "groups": None if groups is None else wire.names("groups", groups),
            "delay_ms": None if delay is None else millis("delay", delay),
        }
        await self._ask("change", id, fields)

    async def ping(self) -> None:
        """Ask the broker for a sign of life; errors as of cancel."""
        await self._ask("ping", None)

    @property
    def outstanding(self) -> int:
        """Jobs submitted and not ended."""
        return self._gate.outstanding

    async def drain(self, wait: float | None = None) -> None:
        """Take no more jobs, wait for the outstanding ones to end, and close.

        After wait seconds it closes at once and raises asyncio.TimeoutError.
        """
        self._gate.close()
        try:
            await self._gate.wait_async(self._gate.empty, wait)
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

    # What both submitters do.

    def _make(
        self,
        kind: type[J],
        submitter: object,
        type: str | None,
        body: object,
        options: Any,
    ) -> J:
        id, raw = options.pop("id", None), options.pop("raw", None)
        if id is None:
            id = f"{self._prefix}{next(self._numbers)}"
        frame = encode_submit(self._options.compat, id, type, body, options)
        raw = self._raw if raw is None else raw
        return kind(submitter, id, type, frame, options, raw)

    def _make_attach(
        self,
        kind: type[J],
        submitter: object,
        id: str,
        on_progress: OnProgress | None,
        raw: bool | None,
    ) -> J:
        self._needs("attach")
        frame = wire.request(
            "attach", id=check_name("id", id), progress=True if on_progress else None
        )
        raw = self._raw if raw is None else raw
        options = {"on_progress": on_progress, "keep": True}
        return kind(submitter, id, None, frame, options, raw)

    def _needs(self, what: str) -> None:
        if self._options.compat:
            raise Unsupported(f"{what} is not known to a compat broker")

    def _ask_cancel(self, id: str) -> None:
        """Begin to cancel a job, whatever comes of it."""
        self._needs("cancel")
        self._connector.ask("cancel", id, {}, lambda _: None)

    async def _ask(
        self, verb: str, id: str | None, fields: Mapping[str, object] = {}
    ) -> None:
        self._needs(verb)
        if id is not None:
            check_name("id", id)
        self._begin()
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if reply.done():  # the task that asked was cancelled
                return
            if error is None:
                reply.set_result(None)
            else:
                reply.set_exception(error)

        self._connector.ask(verb, id, fields, done)
        await reply
