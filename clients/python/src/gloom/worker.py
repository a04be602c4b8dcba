"""The workers: AsyncWorker for coroutines, and Worker for threads or processes, which is
an AsyncWorker in a loop of its own."""

import asyncio
import concurrent.futures
import contextlib
import signal
import threading
from collections.abc import Sequence
from typing import Any, Awaitable, Callable, Iterator, Self, Unpack, cast

from . import _trace, wire
from ._link import Backoff, is_permanent
from ._loop import LoopThread, start, within
from ._options import Event, Notice, Options, Settings
from ._processes import Handler, Processes
from ._socket import Socket
from .errors import ClosedError, NotConnected
from .job import AsyncJob, Job, JobBase, Outcome, answer, execute, failed, verdict
from .wire import names

AsyncHandler = Callable[[AsyncJob], Awaitable[Any]]


@contextlib.contextmanager
def signals(wanted: bool, caught: Callable[[], object]) -> Iterator[None]:
    """Catch SIGTERM and SIGINT within the context, if wanted and in the main thread."""
    here = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if wanted and here else ()
    before = [(number, signal.signal(number, lambda *_: caught())) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler or signal.SIG_DFL)


class AsyncWorker:
    """Serves jobs of one or more types with coroutines: Worker for asyncio.

    handler: an async function, called with an AsyncJob, up to concurrency times at
    once per broker.  Its task is cancelled when nobody waits for the run any more.
    Settings, semantics and errors are the same as Worker's.
    """

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
        types = names("type", [type] if isinstance(type, str) else type)
        excepted = names("except_", except_)
        too_few = 0 < prefetch < concurrency
        for wrong, why in (
            (concurrency < 0, f"concurrency {concurrency}: must not be negative"),
            (prefetch < 0, f"prefetch {prefetch}: must not be negative"),
            (stop_timeout < 0, f"stop_timeout {stop_timeout}: must not be negative"),
            (too_few, f"prefetch {prefetch}: less than concurrency {concurrency}"),
            (not types, "type: an empty list"),
            (excepted and not several, "except_: needs a list of types"),
        ):
            if wrong:
                raise ValueError(why)
        self._handler = handler
        self._stop_timeout = stop_timeout
        self._concurrency = concurrency or prefetch or 1
        self._prefetch = prefetch
        self._raw = raw
        self._join = wire.request(
            "join",
            type=None if several else types[0],
            types=types if several else None,
            **{"except": excepted or None},
            prefetch=prefetch or None,
            cancel=True,
            headers=headers or _trace.installed or None,
        )
        # The class of its jobs, and what starts a run: Worker sets others.
        self._kind: Callable[..., JobBase] = AsyncJob
        self._start_run: Callable[[Any], None] = self._start_task
        self._tasks: set[asyncio.Task[Outcome]] = set()
        # The task that keeps each socket joined, and the socket while it is connected;
        # empty before the start.
        self._sockets_by_task: dict[asyncio.Task[None], Socket | None] = {}
        self._changed = asyncio.Event()  # set by a join, by leave, and at the end
        self._joined = self._leaving = False
        self._aborted = ""  # when, and with what, connections were dropped
        self._refusal: Exception | None = None  # the first that gave up a socket

    async def run(self, handle_signals: bool = True) -> None:
        """Serve jobs; like Worker.run.  Cancelling the task has the effect of leave."""
        self._begin()
        soon = asyncio.get_running_loop().call_soon_threadsafe
        with signals(handle_signals, lambda: soon(self._on_signal)):
            try:
                while not (self._leaving or self.done):
                    with contextlib.suppress(TimeoutError):  # a signal need not wake it
                        await within(self._changed.wait(), 1)
                    self._changed.clear()
            finally:
                error = self.error
                await self.stop()
            if error is not None:
                raise error

    async def start(self, wait: float | None = None) -> None:
        """Start to serve jobs; like Worker.start."""
        self._begin()
        try:
            await within(self._changed.wait(), wait)
        except BaseException as err:
            with contextlib.suppress(TimeoutError):
                await self.stop(0)
            if isinstance(err, TimeoutError):
                raise NotConnected(f"no broker joined within {wait:g} s") from None
            raise
        if not self._joined:
            raise self.error or ClosedError("the worker was stopped")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting; like Worker.leave."""
        self._leaving = True
        self._changed.set()
        for task, socket in self._sockets_by_task.items():
            if socket is not None:
                socket.leave()
            else:
                task.cancel()  # it is connecting, or waiting to do so

    async def stop(self, timeout: float | None = None) -> None:
        """Stop; like Worker.stop, but handlers' tasks are cancelled at the timeout."""
        if not self._sockets_by_task:
            return
        timeout = self._stop_timeout if timeout is None else timeout
        self.leave()
        try:
            await asyncio.wait({self._over}, timeout=timeout)
        finally:
            if not self.done:
                self._abort(f"after {timeout:g} s")
        await asyncio.wait({self._over})
        if self._aborted:
            raise TimeoutError(f"worker stopped {self._aborted}")

    @property
    def done(self) -> bool:
        """Whether the worker has ended: it was stopped, or refused permanently."""
        return bool(self._sockets_by_task) and self._over.done()

    @property
    def error(self) -> Exception | None:
        """Why the worker is done; like Worker.error."""
        return self._refusal if self.done and not self._leaving else None

    def _begin(self) -> None:
        if self._sockets_by_task:
            raise RuntimeError("the worker has already been started")
        if self._leaving:
            raise ClosedError("the worker has been stopped")
        sockets = 1 if self._prefetch else self._concurrency
        addrs = [*self._options.addrs] * sockets
        tasks = [start(self._keep_joined(addr)) for addr in addrs]
        # Done when every socket has left or has been given up.
        self._over = asyncio.gather(*tasks, return_exceptions=True)
        self._over.add_done_callback(lambda _: self._changed.set())
        self._sockets_by_task = dict.fromkeys(tasks)

    async def _keep_joined(self, addr: str) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        backoff = Backoff(self._options)
        while not self._leaving:
            socket = Socket(self, addr)
            try:
                await socket.open()
            except Exception as err:
                cause = err
            else:
                self._sockets_by_task[task] = socket
                cause = await socket.serve()
                self._sockets_by_task[task] = None
            if self._leaving:
                return
            if not socket.joined and is_permanent(cause):
                self._refusal = self._refusal or cause
                self._options.report(Notice(Event.GIVEN_UP, addr, cause))
                return
            wait = backoff.lost(socket) if socket.joined else backoff.failed(addr, cause)
            await asyncio.sleep(wait)

    def _on_joined(self, addr: str) -> None:
        self._options.report(Notice(Event.JOINED, addr))
        self._joined = True
        self._changed.set()

    def _abort(self, when: str) -> None:
        """Drop all connections and wait for no handler."""
        self._leaving = True
        jobs = sum(len(s.running) for s in self._sockets_by_task.values() if s is not None)
        left = "without the brokers' replies"
        if jobs:
            left = f"with {jobs} job{'s' * (jobs > 1)} running"
        self._aborted = self._aborted or f"{when} {left}"
        error = ClosedError("the worker was stopped")
        for keeper, socket in self._sockets_by_task.items():
            if socket is not None:
                socket.abort(error)
                socket.abandon(error)
            keeper.cancel()
        for task in self._tasks:
            task.cancel()

    def _start_task(self, job: AsyncJob) -> None:
        """Run a job's handler as a task, and pass its outcome to its socket."""
        task = asyncio.get_running_loop().create_task(self._work(job))
        self._tasks.add(task)

        def done(_: object) -> None:
            self._tasks.discard(task)
            outcome = failed("cancelled")  # perhaps before it began
            if not task.cancelled():
                error = task.exception()
                outcome = verdict(error) if error else task.result()
            job._socket.finish(job, outcome)

        task.add_done_callback(done)
        job._on_end = lambda cause: task.cancel()

    async def _work(self, job: AsyncJob) -> Outcome:
        with _trace.traced_by(job.headers):
            return answer(await self._handler(job))

    def _on_signal(self) -> None:
        """Handle a signal: leave at the first one, stop at once at the second."""
        if self._leaving:
            self._abort("at the second signal")
        self.leave()


class Worker:
    """Serves jobs of one or more types with a pool of handlers.

    type: the type, or a list of types and patterns, in which * matches any
    characters; except_: types and patterns to leave out of the list.  Among all its
    types a worker gets the best job: the largest priority first, then the oldest.
    handler: runs a job; called with a Job, several at once.  What it returns is the
    answer: RawJSON as it is, anything else encoded as JSON.  If it raises, the run
    has failed, the error's text is the reason, and the job is retried while it has
    retries left; raise Fatal, RetryAfter or Release for another outcome.

    addrs: brokers, as for Submitter (default port 9999).  The worker joins all of
    them, each with the whole concurrency: up to concurrency × addresses jobs run.
    concurrency: how many jobs run at once at most, per broker.  0 is 1, or prefetch if
    that is set.
    prefetch: at least concurrency.  The handlers of a broker share one socket, which
    may have this many jobs: those that run, and others that wait here to save a
    round trip.  0: a socket per handler, each with one job.
    processes: handlers run in processes instead of threads: they use all cores, and
    one that dies fails only its own run.  The handler must be a function that can be
    imported by name.
    stop_timeout: seconds that run and stop wait for running jobs.
    raw: bodies are RawJSON, the bytes as the submitter sent them.
    headers: jobs come with their headers.
    settings: see Settings.
    """

    def __init__(
        self,
        type: str | Sequence[str],
        handler: Handler,
        *addrs: str,
        except_: Sequence[str] = (),
        concurrency: int = 0,
        prefetch: int = 0,
        processes: bool = False,
        stop_timeout: float = 30.0,
        raw: bool = False,
        headers: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        self._core = AsyncWorker(
            type,
            cast(Any, handler),
            *addrs,
            except_=except_,
            concurrency=concurrency,
            prefetch=prefetch,
            stop_timeout=stop_timeout,
            raw=raw or processes,
            headers=headers,
            **settings,
        )
        self._core._kind, self._core._start_run = Job, self._start_run
        self._handler = handler
        self._thread = LoopThread("gloom-worker", self._finish)
        self._children = Processes(handler, raw) if processes else None
        self._threads = concurrent.futures.ThreadPoolExecutor(
            self._core._concurrency * len(self._core._options.addrs), "gloom-worker"
        )

    def run(self, handle_signals: bool = True) -> None:
        """Serve jobs until leave or stop is called, then finish the running ones.

        In the main thread SIGTERM and SIGINT call leave, and a second signal stops at
        once, unless handle_signals is False.  Raises the refusal if every broker
        refuses the worker permanently; unreachable brokers are retried forever.
        Drops connections and raises TimeoutError if running jobs outlast stop_timeout.
        """
        self._start_thread()
        with signals(handle_signals, lambda: self._thread.call(self._core._on_signal)):
            self._thread.run_last(lambda: self._core.run(handle_signals=False))

    def start(self, wait: float | None = None) -> None:
        """Start to serve jobs; returns when the first socket has joined.

        Raises the refusal if every broker refuses the worker permanently.  After
        wait seconds (None: no limit) stops the worker and raises NotConnected.  The
        caller must call stop in the end.
        """
        self._start_thread()
        try:
            self._thread.run(lambda: self._core.start(wait))
        except ClosedError:
            raise  # the thread that called stop closes it
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting: handlers and signal handlers may call this.
        Takes no more jobs; run returns when all jobs are answered."""
        self._core._leaving = True  # even before run
        self._thread.call(self._core.leave)

    def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs, give back those not started, let running ones finish, and
        wait until the brokers have their answers.

        After timeout seconds (None: stop_timeout) closes the connections and raises
        TimeoutError without waiting for the handlers: processes are killed, threads
        cannot be.  May be called repeatedly, but not by a handler.
        """
        self._thread.run_last(lambda: self._core.stop(timeout))

    @property
    def done(self) -> bool:
        """Whether the worker has ended: it was stopped, or refused permanently."""
        return self._core.done

    @property
    def error(self) -> Exception | None:
        """Why the worker is done: None before that, and after leave or stop; else the
        first refusal by a broker."""
        return self._core.error

    def _start_thread(self) -> None:
        if self._core._leaving and not self._core._sockets_by_task:
            raise ClosedError("the worker has been stopped")
        self._thread.start()

    def _start_run(self, job: Job) -> None:
        thread, socket = self._thread, job._socket
        job._report = lambda body: thread.run(lambda: socket.report(job, body))

        def work() -> None:
            pool = self._children
            outcome = pool.run(job) if pool else execute(self._handler, job)
            thread.call(socket.finish, job, outcome)

        self._threads.submit(work)

    async def _finish(self) -> None:
        """End threads and processes, with the handlers that still run in them."""
        if self._core._sockets_by_task and not self._core.done:
            self._core._abort("at its end")
        finished = self._core.done and not self._core._aborted
        if self._children is not None:
            self._children.close(kill=not finished)
        self._threads.shutdown(wait=finished)
