"""The worker whose handlers run in threads or processes: the asyncio one, in a
loop of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ._loop import LoopThread
from ._options import Settings
from ._processes import Processes
from .async_worker import SIGNALS, AsyncWorker
from .errors import ClosedError
from .failure import Outcome, execute
from .job import Job

if TYPE_CHECKING:
    from typing_extensions import Unpack

Handler = Callable[[Job], Any]


class _Core(AsyncWorker):
    """Executes jobs in threads."""

    loop: LoopThread
    _kind = Job

    _handler: Callable[[Job], Outcome]  # type: ignore[assignment]

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._threads = concurrent.futures.ThreadPoolExecutor(
            self._concurrency * len(self._options.addrs),
            thread_name_prefix="gloom-worker",
        )

    def _start_run(self, job: Job) -> None:
        report = job._socket.report
        job._report = lambda body: self.loop.run(lambda: report(job, body))
        self._threads.submit(self._thread, job)

    def _thread(self, job: Job) -> None:
        outcome = self._handler(job)
        with contextlib.suppress(ClosedError):  # stopped meanwhile
            self.loop.call(job._socket.finish, job, outcome)


class Worker:
    """Serves jobs of one type, or of several, with a pool of handlers.

    type: the jobs' type, or a list of types and of patterns, in which * stands for
    any characters; except_: types and patterns that are not served then.  Among all
    its types a worker gets the best job: larger priority first, then age.
    handler: does a job; called with a Job, several at once.  What it returns
    is the answer: RawJSON as it is, anything else encoded as JSON.  When it
    raises, the run has failed, the error's text is the reason, and the job is
    retried as long as it has retries left; raise Fatal, RetryAfter or Release to
    ask for something else.

    addrs: brokers, as of Submitter (default port 9999).  All of them are joined,
    each with the whole concurrency: up to concurrency × addresses jobs run at once.
    concurrency: jobs that run at once, per broker.  0 is 1, or prefetch if
    that is set.
    prefetch: at least concurrency.  The handlers of a broker share one socket,
    on which so many jobs may be out: those that run, and others that wait here
    to save a round trip.  0: a socket per handler, each with one job.
    processes: handlers run in processes instead of threads: they use all
    cores, and one that dies fails its run only.  The handler must be a
    function that can be imported by name.
    stop_timeout: seconds that run and stop wait for running jobs.
    raw: bodies are RawJSON, the bytes as the submitter sent them.
    headers: jobs have the headers that their submitters gave them.
    settings: see Settings.  With compat an error is answered as
    {"error": reason}, sockets leave by closing, and progress raises Unsupported.
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
        if not callable(handler):
            raise TypeError(f"handler {handler!r}: not callable")
        self._children = Processes(handler, raw) if processes else None
        self._core = _Core(
            type,
            self._children.run if self._children else partial(execute, handler),
            *addrs,
            except_=except_,
            concurrency=concurrency,
            prefetch=prefetch,
            stop_timeout=stop_timeout,
            raw=raw or processes,
            headers=headers,
            **settings,
        )
        self._lock = threading.Lock()  # guards what follows
        self._begun = self._closed = False

    def run(self, handle_signals: bool = True) -> None:
        """Serve jobs until leave or stop is called, then finish what runs.

        In the main thread SIGTERM and SIGINT call leave, and a second signal
        stops at once, unless handle_signals is False.  Returns earlier, with
        the refusal raised, when every broker refuses the worker for good;
        brokers that cannot be reached are tried again and again.  Raises
        concurrent.futures.TimeoutError when running jobs take longer than
        stop_timeout; their connections have been closed then.
        """
        self._begin()
        restore = self._catch_signals() if handle_signals else []
        try:
            with contextlib.suppress(ClosedError):  # stop was faster
                self._core.loop.run(lambda: self._core.run(handle_signals=False))
        finally:
            for number, before in restore:
                signal.signal(number, before)
            self._close()

    def start(self, wait: float | None = None) -> None:
        """Begin to serve jobs; returns when the first socket has joined.

        Raises the refusal when every broker refuses the worker for good.
        After wait seconds, None as long as it takes, the worker is stopped
        and NotConnected is raised.  Stop must be called in the end.
        """
        self._begin()
        try:
            self._core.loop.run(lambda: self._core.start(wait))
        except ClosedError:
            raise  # who stopped it closes it
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting: handlers and signal handlers may
        call this.  No new job is taken; run returns when all is answered."""
        self._core._leaving = True  # also before run
        if self._begun:
            with contextlib.suppress(ClosedError):  # stopped already
                self._core.loop.call(self._core.leave)

    def stop(self, timeout: float | None = None) -> None:
        """Take no more jobs, give back those not begun, let running ones finish,
        and wait until the brokers have their answers.

        After timeout seconds, None is stop_timeout, nobody waits for the jobs
        any more, the connections are closed, and
        concurrent.futures.TimeoutError is raised without waiting for the
        handlers: processes are killed, threads cannot be.  May be called
        repeatedly, but not by a handler.
        """
        if not self._begun or self._closed:
            return
        try:
            with contextlib.suppress(ClosedError):  # another stop was faster
                self._core.loop.run(lambda: self._core.stop(timeout))
        finally:
            self._close()

    @property
    def done(self) -> bool:
        """Whether the worker has ended: stopped, or refused for good."""
        return self._core.done

    @property
    def error(self) -> Exception | None:
        """Once done, why: None after leave or stop, else the first of the
        brokers' refusals."""
        return self._core.error

    def _begin(self) -> None:
        with self._lock:
            if self._begun:
                raise RuntimeError("the worker was started before")
            if self._core._leaving:
                raise ClosedError("the worker was stopped before")
            self._core.loop = LoopThread("gloom-worker", self._close)
            self._begun = True

    def _close(self) -> None:
        """End threads, processes and the loop, and what still runs with them."""
        core = self._core
        if not core.loop.here:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if core._began and not core.done:
            core.loop.call(core._abort)
        wait = core.done and not core._aborted
        if self._children is not None:
            self._children.close(kill=not wait)
        core._threads.shutdown(wait=wait)
        core.loop.stop()

    def _catch_signals(self) -> list[tuple[int, Any]]:
        if threading.current_thread() is not threading.main_thread():
            return []

        def caught(*_: object) -> None:
            with contextlib.suppress(ClosedError):
                self._core.loop.call(self._core._caught)

        return [(number, signal.signal(number, caught)) for number in SIGNALS]
