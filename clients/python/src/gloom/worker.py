"""The worker whose handlers run in threads or processes: an AsyncWorker in a loop
of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ._loop import LoopThread
from ._options import Settings
from ._processes import Processes
from .async_worker import AsyncWorker, signals
from .errors import ClosedError
from .failure import Outcome, execute
from .job import Job

if TYPE_CHECKING:
    from typing_extensions import Unpack

Handler = Callable[[Job], Any]

_beginning = threading.Lock()  # held only briefly, so one for all is enough


class _Core(AsyncWorker):
    """Runs handlers in threads, or in a process for each thread."""

    _kind = Job
    thread: LoopThread  # runs the loop

    def __init__(self, processes: bool, raw: bool, *what: Any, **how: Any) -> None:
        super().__init__(*what, raw=raw or processes, **how)
        handler: Any = self._handler
        self._children = Processes(handler, raw) if processes else None
        self._execute: Callable[[Job], Outcome] = partial(execute, handler)
        if self._children is not None:
            self._execute = self._children.run
        self._threads = concurrent.futures.ThreadPoolExecutor(
            self._concurrency * len(self._options.addrs), "gloom-worker"
        )

    def _start_run(self, job: Job) -> None:
        thread, socket = self.thread, job._socket
        job._report = lambda body: thread.run(lambda: socket.report(job, body))

        def work() -> None:
            outcome = self._execute(job)
            with contextlib.suppress(ClosedError):  # stopped meanwhile
                thread.call(socket.finish, job, outcome)

        self._threads.submit(work)

    async def last(self) -> None:
        """End threads and processes, with the handlers that still run in them."""
        if self._began and not self.done:
            self._abort("at its end")
        whole = self.done and not self._aborted
        if self._children is not None:
            self._children.close(kill=not whole)
        self._threads.shutdown(wait=whole)


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
    concurrency: the most jobs that run at once, per broker.  0 is 1, or prefetch if
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

    TimeoutError is concurrent.futures.TimeoutError.
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
        self._core = _Core(
            processes,
            raw,
            type,
            handler,
            *addrs,
            except_=except_,
            concurrency=concurrency,
            prefetch=prefetch,
            stop_timeout=stop_timeout,
            headers=headers,
            **settings,
        )
        self._thread: LoopThread | None = None

    def run(self, handle_signals: bool = True) -> None:
        """Serve jobs until leave or stop is called, then finish the running ones.

        In the main thread SIGTERM and SIGINT call leave, and a second signal stops at
        once, unless handle_signals is False.  Raises the refusal if every broker
        refuses the worker permanently; unreachable brokers are retried forever.
        Raises TimeoutError if running jobs take longer than stop_timeout; their
        connections are closed then.
        """
        thread = self._begin()
        with signals(handle_signals, self._caught):
            try:
                with contextlib.suppress(ClosedError):  # stop was called meanwhile
                    thread.run(lambda: self._core.run(handle_signals=False))
            finally:
                thread.stop()

    def start(self, wait: float | None = None) -> None:
        """Start to serve jobs; returns when the first socket has joined.

        Raises the refusal if every broker refuses the worker permanently.  After
        wait seconds (None: no limit) stops the worker and raises NotConnected.  The
        caller must call stop in the end.
        """
        thread = self._begin()
        try:
            thread.run(lambda: self._core.start(wait))
        except ClosedError:
            raise  # the thread that called stop closes it
        except BaseException:
            thread.stop()
            raise

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting: handlers and signal handlers may call this.
        Takes no more jobs; run returns when all jobs are answered."""
        self._core._leaving = True  # even before run
        self._call(self._core.leave)

    def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs, give back those not started, let running ones finish, and
        wait until the brokers have their answers.

        After timeout seconds (None: stop_timeout) closes the connections and raises
        TimeoutError without waiting for the handlers: processes are killed, threads
        cannot be.  May be called repeatedly, but not by a handler.
        """
        if self._thread is None:
            return
        try:
            with contextlib.suppress(ClosedError):  # another stop is done
                self._thread.run(lambda: self._core.stop(timeout))
        finally:
            self._thread.stop()

    @property
    def done(self) -> bool:
        """Whether the worker has ended: it was stopped, or refused permanently."""
        return self._core.done

    @property
    def error(self) -> Exception | None:
        """Why the worker is done: None before that, and after leave or stop; else the
        first refusal by a broker."""
        return self._core.error

    def _begin(self) -> LoopThread:
        with _beginning:
            if self._thread is not None:
                raise RuntimeError("the worker was started before")
            if self._core._leaving:
                raise ClosedError("the worker was stopped before")
            self._thread = LoopThread("gloom-worker", self._core.last)
            self._core.thread = self._thread
            return self._thread

    def _call(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(ClosedError):  # stopped already
            if self._thread is not None:
                self._thread.call(function)

    def _caught(self) -> None:
        self._call(self._core._caught)
