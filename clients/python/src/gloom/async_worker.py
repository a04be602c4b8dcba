"""The worker whose handlers are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Iterator, cast

from . import _trace, wire
from ._backoff import Backoff, hopeless
from ._loop import start, within
from ._options import Event, Notice, Options, Settings
from ._socket import Service, Socket
from .errors import ClosedError, NotConnected
from .failure import Outcome, answer, verdict
from .job import AsyncJob, JobBase
from .wire import check_name, names

if TYPE_CHECKING:
    from typing_extensions import Unpack


AsyncHandler = Callable[[AsyncJob], Awaitable[Any]]


@contextlib.contextmanager
def signals(wanted: bool, caught: Callable[[], object]) -> Iterator[None]:
    """Catch SIGTERM and SIGINT within the context, if wanted and in the main thread."""
    before: list[tuple[int, Any]] = []
    if wanted and threading.current_thread() is threading.main_thread():
        for name in signal.SIGTERM, signal.SIGINT:
            before.append((name, signal.signal(name, lambda *_: caught())))
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler or signal.SIG_DFL)


class AsyncWorker:
    """Serves jobs of one or more types with coroutines: Worker for asyncio.

    handler: an async function, called with an AsyncJob, up to concurrency times at
    once per broker.  Its task is cancelled when nobody waits for the run any more.
    Settings, semantics and errors are the same as Worker's, except that
    TimeoutError is asyncio's.
    """

    _kind: type[JobBase] = AsyncJob

    def __init__(
        self,
        type: str | Sequence[str],
        handler: AsyncHandler,
        *addrs: str,
        except_: Sequence[str] = (),
        concurrency: int = 0,
        prefetch: int = 0,
        stop_timeout: float = 30.0,
        raw: bool = False,
        headers: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        if not callable(handler):
            raise TypeError(f"handler {handler!r}: not callable")
        self._options = Options(addrs, "worker", 9999, **settings)
        several = not isinstance(type, str)
        types = names("type", type) if several else [check_name("type", type)]
        excepted = names("except_", except_)
        low = 0 < prefetch < concurrency
        for wrong, why in (
            (concurrency < 0, f"concurrency {concurrency}: must not be negative"),
            (prefetch < 0, f"prefetch {prefetch}: must not be negative"),
            (stop_timeout < 0, f"stop_timeout {stop_timeout}: must not be negative"),
            (low, f"prefetch {prefetch}: less than concurrency {concurrency}"),
            (not types, "type: an empty list"),
            (excepted and not several, "except_: goes with a list of types"),
        ):
            if wrong:
                raise ValueError(why)
        self._handler = handler
        self._stop_timeout = stop_timeout
        self._concurrency = concurrency or prefetch or 1
        join = wire.request(
            "join",
            type=None if several else types[0],
            types=types if several else None,
            **{"except": excepted or None},
            prefetch=prefetch or None,
            cancel=True,
            headers=headers or _trace.installed or None,
        )
        handlers = self._concurrency if prefetch else 1
        told = self._start_run, self._on_joined
        self._service = Service(join, prefetch, handlers, raw, self._kind, *told)
        self._tasks: set[asyncio.Task[Outcome]] = set()
        # The task that keeps each socket joined, and the socket while it is connected.
        self._seats: dict[asyncio.Task[None], Socket | None] = {}
        self._began = self._joined = self._leaving = False
        self._aborted = ""  # when, and with what, connections were dropped
        self._refused: list[Exception] = []  # why sockets were given up

    async def run(self, handle_signals: bool = True) -> None:
        """Serve jobs; like Worker.run.  Cancelling the task has the effect of leave."""
        self._begin()
        soon = asyncio.get_running_loop().call_soon_threadsafe
        with signals(handle_signals, lambda: soon(self._caught)):
            try:
                while not (self._leaving or self.done):
                    await self._news.wait()
                    self._news.clear()
            finally:
                error = self.error
                await self.stop()
            if error is not None:
                raise error

    async def start(self, wait: float | None = None) -> None:
        """Start to serve jobs; like Worker.start."""
        self._begin()
        error: BaseException
        try:
            await within(self._news.wait(), wait)
        except asyncio.TimeoutError:
            error = NotConnected(f"no broker joined within {wait:g} s")
        except asyncio.CancelledError as err:
            error = err
        else:
            if self._joined:
                return
            if self.error is None:
                raise ClosedError("the worker was stopped")
            error = self.error
        await self._end(0)
        raise error

    async def __aenter__(self) -> AsyncWorker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting; like Worker.leave."""
        self._leaving = True
        if self._began:
            self._news.set()
            for task, socket in self._seats.items():
                if socket is not None:
                    socket.leave()
                else:
                    task.cancel()  # it is connecting, or waiting to do so

    async def stop(self, timeout: float | None = None) -> None:
        """Stop; like Worker.stop, but handlers' tasks are cancelled at the timeout."""
        if not self._began:
            return
        if timeout is None:
            timeout = self._stop_timeout
        self.leave()
        if not await self._end(timeout):
            raise asyncio.TimeoutError(f"worker stopped {self._aborted}")

    @property
    def done(self) -> bool:
        """Whether the worker has ended: it was stopped, or refused permanently."""
        return self._began and self._over.done()

    @property
    def error(self) -> Exception | None:
        """Why the worker is done: None before that, and after leave or stop; else the
        first refusal by a broker."""
        if self._leaving or not self._refused or not self.done:
            return None
        return self._refused[0]

    def _begin(self) -> None:
        if self._began:
            raise RuntimeError("the worker was started before")
        if self._leaving:
            raise ClosedError("the worker was stopped before")
        self._began = True
        # Done when every socket has left or has been given up.
        self._over: asyncio.Future[None] = asyncio.Future()
        self._news = asyncio.Event()  # set on a join, on leave, and at the end
        sockets = 1 if self._service.prefetch else self._concurrency
        for addr in [*self._options.addrs] * sockets:
            task = start(self._keep_joined(addr))
            self._seats[task] = None
            task.add_done_callback(self._seat_over)

    async def _keep_joined(self, addr: str) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        backoff = Backoff(self._options.backoff)
        while not self._leaving:
            socket, since = Socket(self._options, addr, self._service), time.monotonic()
            try:
                await socket.open()
            except Exception as err:
                cause = err
            else:
                self._seats[task] = socket
                try:
                    cause = await socket.serve()
                finally:
                    self._seats[task] = None
            if self._leaving:
                return
            if hopeless(cause):
                self._refused.append(cause)
                self._options.tell(Notice(Event.GIVEN_UP, addr, cause))
                return
            if socket.joined:
                backoff.lasted(time.monotonic() - since)
            event = Event.LOST if socket.joined else Event.FAILED
            wait = backoff.wait()
            self._options.tell(Notice(event, addr, cause, wait))
            await asyncio.sleep(wait)

    def _on_joined(self, addr: str) -> None:
        self._options.tell(Notice(Event.JOINED, addr))
        self._joined = True
        self._news.set()

    def _seat_over(self, task: asyncio.Task[None]) -> None:
        del self._seats[task]
        if not self._seats:
            self._over.set_result(None)
            self._news.set()

    async def _end(self, timeout: float) -> bool:
        """Wait until all jobs are answered, or drop the rest at the timeout.  Returns
        whether all were answered."""
        try:
            await asyncio.wait({self._over}, timeout=timeout)
        finally:
            if not self.done:
                self._abort(f"after {timeout:g} s")
        await asyncio.wait({self._over})
        return not self._aborted

    def _abort(self, when: str) -> None:
        """Drop all connections and wait for no handler."""
        self._leaving = True
        jobs = sum(s.running for s in self._seats.values() if s is not None)
        left = "without the brokers' replies"
        if jobs:
            left = f"with {jobs} job{'s' * (jobs > 1)} running"
        self._aborted = self._aborted or f"{when} {left}"
        error = ClosedError("the worker was stopped")
        for seat, socket in self._seats.items():
            if socket is not None:
                socket.abort(error)
                socket.abandon(error)
            seat.cancel()
        for task in self._tasks:
            task.cancel()

    def _start_run(self, job: Any) -> None:
        """Start a run, and pass its outcome to its socket."""
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)

        def done(_: object) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                # Cancelled, perhaps before it began.
                job._socket.finish(job, Outcome(reason="cancelled"))
            else:
                error = task.exception()
                job._socket.finish(job, verdict(error) if error else task.result())

        task.add_done_callback(done)
        job._on_end = lambda cause: task.cancel()

    async def _work(self, job: AsyncJob) -> Outcome:
        with _trace.as_told_by(job.headers):
            return answer(await self._handler(job))

    def _caught(self) -> None:
        """Handle a signal: leave at the first one, stop at once at the second."""
        if self._leaving:
            self._abort("at the second signal")
        self.leave()
