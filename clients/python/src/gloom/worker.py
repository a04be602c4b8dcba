"""The worker whose handlers run in threads or processes."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import pickle
import signal
import ssl
import threading
from multiprocessing.context import BaseContext
from typing import Any, Callable, List, Optional, Tuple, Union

from . import wire
from ._options import BACKOFF, DIAL_TIMEOUT, STOP_TIMEOUT, Notify
from ._loop import LoopOwner, LoopThread
from ._pool import Pool
from ._processes import ProcessRunner
from ._threads import Handler, ThreadRunner
from ._work import WorkerBase
from .errors import ClosedError, NotConnected

__all__ = ["Worker"]


class Worker(WorkerBase[Handler], LoopOwner):
    """Serves jobs of one type with a pool of handlers.

    handler: does a job; called with a Job, several at once.  What it returns
    is the answer: RawJSON as it is, anything else encoded as JSON.  When it
    raises, the run has failed, the error's text is the reason, and the job is
    retried as long as it has retries left; raise Fatal or RetryAfter to ask
    for something else.

    addrs: brokers, "host:port" or "unix:/path" (default 127.0.0.1:9999).  All
    of them are joined, each with the whole concurrency: up to concurrency ×
    addresses jobs run at once.
    concurrency: jobs that run at once, per broker.  0 is 1, or prefetch if
    that is set.
    prefetch: at least concurrency.  The handlers of a broker share one socket,
    on which so many jobs may be out: those that run, and others that wait here
    to save a round trip.  0: a socket per handler, each with one job.
    processes: handlers run in processes instead of threads: they use all
    cores, and one that dies fails its run only.  The handler must be a
    function that can be imported by name.  mp_context is what starts them, by
    default multiprocessing's "spawn"; any but "fork" will do.
    stop_timeout: seconds that run and stop wait for running jobs.
    raw: bodies are RawJSON, the bytes as the submitter sent them.

    token, client, heartbeat, tls, server_hostname, dial_timeout, max_frame,
    backoff and notify are as of Submitter.
    compat: for brokers that know the original protocol only.  An error is
    answered as {"error": reason}, sockets leave by closing, and progress
    raises Unsupported.
    """

    def __init__(
        self,
        type: str,
        handler: Handler,
        *addrs: str,
        concurrency: int = 0,
        prefetch: int = 0,
        processes: bool = False,
        mp_context: Optional[BaseContext] = None,
        stop_timeout: float = STOP_TIMEOUT,
        raw: bool = False,
        token: Optional[str] = None,
        client: Optional[str] = None,
        heartbeat: float = 0.0,
        tls: Optional[ssl.SSLContext] = None,
        server_hostname: Optional[str] = None,
        dial_timeout: float = DIAL_TIMEOUT,
        max_frame: int = wire.MAX_FRAME,
        backoff: Tuple[float, float] = BACKOFF,
        notify: Optional[Notify] = None,
        compat: bool = False,
    ) -> None:
        super().__init__(
            type,
            handler,
            *addrs,
            concurrency=concurrency,
            prefetch=prefetch,
            stop_timeout=stop_timeout,
            raw=raw,
            token=token,
            client=client,
            heartbeat=heartbeat,
            tls=tls,
            server_hostname=server_hostname,
            dial_timeout=dial_timeout,
            max_frame=max_frame,
            backoff=backoff,
            notify=notify,
            compat=compat,
        )
        self._context: Optional[BaseContext] = None
        if processes:
            self._context = mp_context or multiprocessing.get_context("spawn")
            if self._context.get_start_method() == "fork":
                # Children would hold copies of connections and pipes open.
                raise ValueError('mp_context: not "fork", but another method')
            _check_importable(handler)
        self._thread: Optional[LoopThread] = None
        self._news = threading.Event()  # joined, done, or asked to stop
        self._over = threading.Event()
        self._joined = False
        self._leaving = False
        self._stopped = False
        self._aborted = False
        self._lock = threading.Lock()

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
            while not (self._leaving or self._over.is_set()):
                self._news.wait()
                self._news.clear()
            error = self.error
            self.stop()
            if error is not None:
                raise error
        finally:
            for number, before in restore:
                signal.signal(number, before)

    def start(self, wait: Optional[float] = None) -> None:
        """Begin to serve jobs; returns when the first socket has joined.

        Raises the refusal when every broker refuses the worker for good.
        After wait seconds, None as long as it takes, the worker is stopped
        and NotConnected is raised.  Stop must be called in the end.
        """
        self._begin()
        if not self._news.wait(wait):
            self._end(0)
            raise NotConnected(f"no broker joined within {wait:g} s")
        if self._joined:
            return
        error = self.error
        if error is None:
            raise ClosedError("the worker was stopped")
        self._end(0)
        raise error

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def leave(self) -> None:
        """Begin to stop, without waiting: handlers and signal handlers may
        call this.  No new job is taken; run returns when all is answered."""
        self._leaving = True
        self._news.set()
        thread = self._thread
        if thread is not None:
            try:
                thread.call(self._pool.leave)
            except RuntimeError:
                pass  # stopped already

    def stop(self, timeout: Optional[float] = None) -> None:
        """Take no more jobs, let running ones finish, and wait until the
        brokers have their answers.

        After timeout seconds, None is stop_timeout, nobody waits for the jobs
        any more, the connections are closed, and
        concurrent.futures.TimeoutError is raised without waiting for the
        handlers: processes are killed, threads cannot be.  May be called
        repeatedly, but not by a handler.
        """
        if self._thread is None or self._stopped:
            return
        if timeout is None:
            timeout = self._stop_timeout
        self.leave()
        if not self._end(timeout):
            raise concurrent.futures.TimeoutError(
                f"worker stopped with jobs running after {timeout:g} s"
            )

    @property
    def done(self) -> bool:
        """Whether the worker has ended: stopped, or refused for good."""
        return self._over.is_set()

    @property
    def error(self) -> Optional[Exception]:
        """Once done, why: None after leave or stop, else the first of the
        brokers' refusals."""
        if self._leaving or not self.done or not self._pool.refused:
            return None
        return self._pool.refused[0]

    def _begin(self) -> None:
        with self._lock:
            if self._thread is not None:
                raise RuntimeError("the worker was started before")
            if self._leaving:
                raise ClosedError("the worker was stopped before")
            thread = LoopThread("gloom-worker", self)
            handlers = self._concurrency * len(self._options.addrs)
            self._runner: Union[ThreadRunner, ProcessRunner]
            if self._context is None:
                self._runner = ThreadRunner(
                    thread.loop, self._handler, handlers, self._raw
                )
            else:
                self._runner = ProcessRunner(
                    thread.loop, self._handler, self._context, self._raw
                )
            self._pool = Pool(
                self._options,
                self._type,
                self._concurrency,
                self._prefetch,
                self._runner,
                self._on_joined,
                self._on_done,
            )
            self._thread = thread
        thread.call(self._pool.start)

    def _on_joined(self) -> None:
        self._joined = True
        self._news.set()

    def _on_done(self) -> None:
        self._over.set()
        self._news.set()

    def _end(self, timeout: float) -> bool:
        """Stop for good, at the latest after so many seconds; whether all
        jobs were answered by then."""
        thread = self._thread
        assert thread is not None
        in_time = self._over.wait(timeout)
        with self._lock:
            if self._stopped:
                return not self._aborted
            self._stopped = True
        if not in_time:
            self._abort()
            self._over.wait()
        self._runner.close(wait=not self._aborted)
        thread.stop()
        return not self._aborted

    def _abort(self) -> None:
        assert self._thread is not None
        self._leaving = self._aborted = True
        self._thread.call(self._pool.abort)

    def _at_exit(self) -> None:
        if not self._stopped:
            self._end(0)

    def _forked(self) -> None:
        self._stopped = True
        self._over.set()

    def _catch_signals(self) -> List[Tuple[int, Any]]:
        if threading.current_thread() is not threading.main_thread():
            return []

        def caught(*_: object) -> None:
            if self._leaving:
                self._abort()
            self.leave()

        return [
            (number, signal.signal(number, caught))
            for number in (signal.SIGTERM, signal.SIGINT)
        ]


def _check_importable(handler: Callable[..., Any]) -> None:
    try:
        pickle.dumps(handler)
    except Exception as err:
        raise TypeError(
            f"handler {handler!r}: a process cannot import it by name: {err}"
        ) from None
