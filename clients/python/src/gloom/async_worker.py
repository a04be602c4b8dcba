"""The worker whose handlers are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Awaitable, Callable

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


#: Those that end a worker.
SIGNALS = [signal.SIGTERM, signal.SIGINT]

AsyncHandler = Callable[[AsyncJob], Awaitable[Any]]


class AsyncWorker:
    """Serves jobs of one type, or of several, with coroutines; Worker's asyncio twin.

    handler: an async function, called with an AsyncJob, concurrency times at
    once per broker.  Its task is cancelled when nobody waits for the run any
    more.  Settings, semantics and errors are those of Worker.
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
        for field, value in (
            ("concurrency", concurrency),
            ("prefetch", prefetch),
            ("stop_timeout", stop_timeout),
        ):
            if value < 0:
                raise ValueError(f"{field} {value}: must not be negative")
        if prefetch and prefetch < concurrency:
            raise ValueError(
                f"prefetch {prefetch}: must be at least the concurrency, {concurrency}"
            )
        self._options = Options(addrs, "worker", 9999, **settings)
        compat = self._options.compat
        several = not isinstance(type, str)
        types = names("type", type) if several else [check_name("type", type)]
        excepted = names("except_", except_)
        if compat and (prefetch or several or headers):
            raise ValueError(
                "prefetch, several types and headers cannot be had from a compat broker"
            )
        if not types:
            raise ValueError("type: an empty list")
        if excepted and not several:
            raise ValueError("except_: goes with a list of types")
        self._handler = handler
        self._stop_timeout = stop_timeout
        self._concurrency = concurrency or prefetch or 1
        join = wire.request(
            "join",
            type=None if several else types[0],
            types=types if several else None,
            **{"except": excepted or None},
            prefetch=prefetch or None,
            cancel=None if compat else True,
            headers=(headers or _trace.installed) and not compat or None,
        )
        handlers = self._concurrency if prefetch else 1
        self._service = Service(
            join,
            prefetch,
            handlers,
            compat,
            raw,
            self._kind,
            self._start_run,
            self._on_joined,
        )
        self._tasks: set[asyncio.Task[Outcome]] = set()
        # What keeps each socket joined, and the socket while it is connected.
        self._seats: dict[asyncio.Task[None], Socket | None] = {}
        self._began = self._joined = self._leaving = self._aborted = False
        self._refused: list[Exception] = []  # why sockets were given up

    async def run(self, handle_signals: bool = True) -> None:
        """Serve jobs until leave or stop is called or the task is cancelled,
        then finish what runs.

        In the main thread SIGTERM and SIGINT call leave, and a second signal
        stops at once, unless handle_signals is False.  Raises the refusal when
        every broker refuses the worker for good, and asyncio.TimeoutError
        when running jobs take longer than stop_timeout.
        """
        self._begin()
        caught = self._catch_signals() if handle_signals else []
        try:
            while not (self._leaving or self.done):
                await self._news.wait()
                self._news.clear()
            error = self.error
            await self.stop()
            if error is not None:
                raise error
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            loop = asyncio.get_running_loop()
            for number in caught:
                loop.remove_signal_handler(number)

    async def start(self, wait: float | None = None) -> None:
        """Begin to serve jobs; returns when the first socket has joined.

        Raises the refusal when every broker refuses the worker for good.
        After wait seconds, None as long as it takes, the worker is stopped
        and NotConnected is raised.  Stop must be called in the end.
        """
        self._begin()
        try:
            await within(self._news.wait(), wait)
        except asyncio.TimeoutError:
            await self._end(0)
            raise NotConnected(f"no broker joined within {wait:g} s") from None
        except asyncio.CancelledError:
            await self._end(0)
            raise
        if self._joined:
            return
        error = self.error
        if error is None:
            raise ClosedError("the worker was stopped")
        await self._end(0)
        raise error

    async def __aenter__(self) -> AsyncWorker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting: handlers may call this.  No new job
        is taken; run returns when all is answered."""
        self._leaving = True
        if self._began:
            self._news.set()
            for task, socket in self._seats.items():
                if socket is not None:
                    socket.leave()
                else:
                    task.cancel()  # connecting, or waiting to

    async def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs, give back those not begun, let running ones finish,
        and wait until the brokers have their answers.

        After timeout seconds, None is stop_timeout, the handlers' tasks are
        cancelled, the connections are closed, and asyncio.TimeoutError is
        raised.  May be called repeatedly, but not by a handler.
        """
        if not self._began:
            return
        if timeout is None:
            timeout = self._stop_timeout
        self.leave()
        if not await self._end(timeout):
            raise asyncio.TimeoutError(
                f"worker stopped with jobs running after {timeout:g} s"
            )

    @property
    def done(self) -> bool:
        """Whether the worker has ended: stopped, or refused for good."""
        return self._began and self._over.is_set()

    @property
    def error(self) -> Exception | None:
        """Once done, why: None after leave or stop, else the first of the
        brokers' refusals."""
        if self._leaving or not self._refused or not self.done:
            return None
        return self._refused[0]

    def _begin(self) -> None:
        if self._began:
            raise RuntimeError("the worker was started before")
        if self._leaving:
            raise ClosedError("the worker was stopped before")
        self._began = True
        #: Set when every socket has left or has been given up.
        self._over = asyncio.Event()
        #: Set when a socket joins, when it is over, and when it leaves.
        self._news = asyncio.Event()
        sockets = 1 if self._service.prefetch else self._concurrency
        for addr in self._options.addrs:
            for _ in range(sockets):
                task = start(self._keep_joined(addr))
                self._seats[task] = None
                task.add_done_callback(self._seat_over)

    async def _keep_joined(self, addr: str) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        backoff = Backoff(self._options.backoff)
        while not self._leaving:
            since = loop.time()
            socket = Socket(self._options, addr, self._service)
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
                backoff.lasted(loop.time() - since)
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
            self._over.set()
            self._news.set()

    async def _end(self, timeout: float) -> bool:
        """Wait until all is answered, or drop what is not in time; whether it was."""
        with contextlib.suppress(asyncio.TimeoutError):
            try:
                await within(self._over.wait(), timeout)
            finally:
                if not self.done:
                    self._abort()
        await self._over.wait()
        return not self._aborted

    def _abort(self) -> None:
        """Drop all connections and wait for no handler."""
        self._leaving = self._aborted = True
        error = ClosedError("the worker was stopped")
        for seat, socket in self._seats.items():
            if socket is not None:
                socket.abort(error)
                socket.abandon(error)
            seat.cancel()
        for task in self._tasks:
            task.cancel()

    def _start_run(self, job: Any) -> None:
        """Begin a run, and tell its socket in the end."""
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)

        def done(_: object) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                # Called off, perhaps before it began: it has nothing to say.
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
        """A signal came: leave, or at the second one stop at once."""
        if self._leaving:
            self._abort()
        self.leave()

    def _catch_signals(self) -> list[signal.Signals]:
        if threading.current_thread() is not threading.main_thread():
            return []
        loop = asyncio.get_running_loop()
        try:
            for number in SIGNALS:
                loop.add_signal_handler(number, self._caught)
        except NotImplementedError:  # Windows
            return []
        return SIGNALS
