"""Runs handlers in child processes, one for each thread.

When a child dies, only the job that it was running fails.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Callable

from .body import RawJSON
from .errors import GloomError
from .job import Job, Outcome, execute, failed, verdict

Handler = Callable[[Job], Any]


class Processes:
    """One child for each calling thread, started when first needed and then reused."""

    def __init__(self, handler: Handler, raw: bool) -> None:
        try:
            pickle.dumps(handler)
        except Exception as err:
            raise TypeError(
                f"handler {handler!r}: a process cannot import it by name: {err}"
            ) from None
        self._what = handler, raw
        self._lock = threading.Lock()  # guards _closed: no child is started after close
        self._closed = False
        self._children: dict[int, _ChildProcess] = {}  # by the thread that it serves

    def run(self, job: Job) -> Outcome:
        """Have a child run the handler for a job whose body is RawJSON."""
        me = threading.get_ident()
        try:
            child = self._children.get(me)
            if child is None or not child.process.is_alive():
                with self._lock:
                    if self._closed:
                        raise EOFError("the worker was stopped")
                    child = self._children[me] = _ChildProcess(*self._what)
        except (EOFError, OSError) as err:
            return failed(f"no process could be started: {err}")
        try:
            return child.run(job)
        except (EOFError, OSError):
            child.process.join()
            code = child.process.exitcode
            return failed(f"worker process ended with exit code {code}")
        except Exception as err:  # such as a result that cannot be unpickled here
            return verdict(err)

    def close(self, kill: bool) -> None:
        """End the children; if kill is set, even while they run a job."""
        with self._lock:
            self._closed = True
        for child in self._children.values():
            end = child.process.kill if kill else child.pipe.close
            end()
            child.process.join()


class _ChildProcess:
    """One process, as its parent sees it.

    The parent sends the messages begin, unwanted and reported, with their arguments; the
    child sends an Outcome, or bytes to report.  Errors of this package can be pickled.
    """

    def __init__(self, *what: Any) -> None:
        # Forked processes would hold copies of connections and pipes open.
        context: Any = multiprocessing.get_context("spawn")
        self._sending = threading.Lock()
        self.pipe, theirs = context.Pipe()
        args = theirs, self.pipe, *what
        self.process = context.Process(target=_main, args=args, daemon=True)
        self.process.start()
        theirs.close()

    def run(self, job: Job) -> Outcome:
        """Run a job; Raises EOFError or OSError if the process dies."""
        self._send("begin", job.id, job.type, job.body.data, job.headers)
        job._on_end = lambda cause: self._send("unwanted", job.id, cause)
        if job.cause is not None:
            job._on_end(job.cause)
        while True:
            told = self.pipe.recv()
            if isinstance(told, Outcome):
                return told
            error: Exception | None = None
            try:
                job.progress(RawJSON._trusted(told))
            except (GloomError, RuntimeError) as err:
                error = err
            self._send("reported", error)

    def _send(self, *message: object) -> None:
        # If the child has died, run notices it when it receives.
        with self._sending, contextlib.suppress(OSError):
            self.pipe.send(message)


def _main(pipe: Connection, other: Connection, handler: Handler, raw: bool) -> None:
    """Run in the child: one thread reads the pipe, the main thread runs jobs."""
    other.close()
    # Ctrl-C and the stop of a service reach all processes; the parent stops the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # programs would inherit SIG_IGN
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    replies: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    sending = threading.Lock()  # a handler may use threads of its own
    running: Job | None = None  # it alone may report

    def report(job: Job, body: bytes) -> None:
        with sending:
            if job is not running:
                raise RuntimeError(f"job {job.id!r} has been answered")
            pipe.send(body)
            error = replies.get()
        if error is not None:
            raise error

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                what, *told = pipe.recv()
                if what == "reported":
                    replies.put(told[0])
                elif what == "begin":
                    id, type, data, headers = told
                    body = RawJSON._trusted(data)
                    job = Job(id, type, body if raw else body.value(), headers)
                    job._report = partial(report, job)
                    jobs.put(job)
                elif job.id == told[0]:  # it is unwanted
                    job._end(told[1])
        os._exit(0)  # the parent has no more work, or is gone

    threading.Thread(target=listen, daemon=True).start()
    while True:
        running = jobs.get()
        outcome = execute(handler, running)
        with sending:
            running = None
            pipe.send(outcome)
