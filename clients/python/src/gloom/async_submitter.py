"""The submitter for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, TypeVar

from . import wire
from ._connector import Connector
from ._gate import Gate
from ._loop import within
from ._options import Options, Settings
from .job_options import JobOptions, OnProgress, encode_submit, fields_of
from .pending import AsyncPending, PendingJob
from .wire import check_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = TypeVar("P", bound=PendingJob)


class AsyncSubmitter:
    """Submits jobs to a broker over one connection: Submitter for asyncio.

    Settings, semantics and errors are the same as Submitter's, except that a wait
    ends with asyncio.TimeoutError.  An object belongs to the event loop in which it
    is first used, and begins to connect then.
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
        self._prefix = ""  # of ids; not made before it is needed, maybe in a fork
        self._numbers = itertools.count(1)
        self._gate = Gate(window)
        self._connector = Connector(self._options, self._gate)

    async def connect(self, wait: float | None = None) -> None:
        """Wait until connected: at most wait seconds, or with None until each address
        has been tried once.  Then NotConnected is raised.  A RefusedError is raised
        as soon as all brokers refuse permanently.  In any case attempts continue in
        the background."""
        await self._pass(lambda: self._gate.ready(wait is not None), wait)

    async def __aenter__(self) -> AsyncSubmitter:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def submit(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncPending:
        """Submit a job; arguments and errors are the same as Submitter.submit's."""
        made = self._encode(type, body, options)
        return await self._send(AsyncPending(self._ask_cancel, *made), wait)

    async def attach(
        self,
        id: str,
        *,
        on_progress: OnProgress | None = None,
        raw: bool | None = None,
        wait: float | None = None,
    ) -> AsyncPending:
        """Attach to a kept job; like Submitter.attach."""
        made = self._encode_attach(id, on_progress, raw)
        return await self._send(AsyncPending(self._ask_cancel, *made), wait)

    async def _send(self, pending: P, wait: float | None) -> P:
        await self._pass(lambda: self._gate.enter(pending), wait)
        self._connector.send()
        return pending

    async def _pass(self, condition: Callable[[], bool], wait: float | None) -> None:
        self._connector.begin()
        await self._gate.wait(condition, wait)

    async def do(
        self,
        type: str | None,
        body: object = None,
        *,
        wait: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Submit a job and return its result; like Submitter.do.

        If the task is cancelled, so is the job.
        """
        until = None if wait is None else time.monotonic() + wait
        pending = await self.submit(type, body, wait=wait, **options)
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            return await within(asyncio.shield(pending._end), left)
        finally:
            pending.cancel()

    async def cancel(self, id: str, wait: float | None = None) -> None:
        """Have the broker cancel a job: one of this submitter's, which then ends with
        Cancelled, or any detached one.

        Raises UnknownID if the job has ended or never existed, LostError,
        NotConnected, and TimeoutError after wait seconds.
        """
        await self._ask("cancel", check_name("id", id), {}, wait)

    async def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        groups: Sequence[str] | None = None,
        delay: float | None = None,
        wait: float | None = None,
    ) -> None:
        """Change a waiting job: its priority, its groups ([] removes all), or its delay
        from now in seconds (0 makes it ready).  Arguments that are None change
        nothing.

        It may be one of this submitter's, a detached one, or a kept one whose
        connection is gone.  Raises InvalidState if it is running, and the errors of
        cancel.
        """
        what = fields_of({"priority": priority, "groups": groups, "delay": delay})
        await self._ask("change", check_name("id", id), what, wait)

    async def ping(self, wait: float | None = None) -> None:
        """Check that the broker answers; the errors are those of cancel."""
        await self._ask("ping", None, {}, wait)

    @property
    def outstanding(self) -> int:
        """The number of jobs submitted and not ended."""
        return self._gate.outstanding

    async def drain(self, wait: float | None = None) -> None:
        """Like Submitter.drain."""
        self._gate.close()
        try:
            await self._gate.wait(self._gate.empty, wait)
        finally:
            await self.close()

    async def leave(self, wait: float = 2.0) -> None:
        """Like Submitter.leave."""
        try:
            await self._connector.leave(wait)
        finally:
            await self.close()

    async def close(self) -> None:
        """Like Submitter.close."""
        await self._connector.close()

    # Shared with Submitter.

    def _encode(self, type: str | None, body: object, options: Any) -> tuple[Any, ...]:
        """The arguments of a pending job's constructor."""
        id = options.get("id")
        if id is None:
            self._prefix = self._prefix or secrets.token_hex(6) + "-"
            id = f"{self._prefix}{next(self._numbers)}"
        frame = encode_submit(id, type, body, options)
        return id, type, frame, options, self._raw

    def _encode_attach(
        self, id: str, on_progress: OnProgress | None, raw: bool | None
    ) -> tuple[Any, ...]:
        frame = wire.attach(check_name("id", id), on_progress)
        options = {"on_progress": on_progress, "raw": raw, "keep": True}
        return id, None, frame, options, self._raw

    def _ask_cancel(self, id: str) -> None:
        """Ask the broker to cancel a job, and ignore the reply."""
        self._connector.ask("cancel", id, {}, lambda _: None)

    async def _ask(
        self, verb: str, id: str | None, fields: Mapping[str, Any], wait: float | None
    ) -> None:
        self._connector.begin()
        reply: asyncio.Future[Exception | None] = asyncio.Future()

        def done(error: Exception | None) -> None:
            if not reply.done():  # else the waiting task was cancelled
                reply.set_result(error)

        self._connector.ask(verb, id, fields, done)
        error = await within(reply, wait)
        if error is not None:
            raise error
