"""Runs handlers in child processes, one for each thread.

When a child dies, only the job that it was running fails.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import threading
from typing import Any, Callable

from .body import RawJSON
from .errors import ClosedError, GloomError
from .job import Job, Outcome, execute, failed, verdict

_Handler = Callable[[Job], Any]
_Pipe = multiprocessing.connection.Connection


class Processes:
    """One child for each calling thread, started when first needed and then reused."""

    def __init__(self, handler: _Handler, raw: bool) -> None:
        try:
            pickle.dumps(handler)
        except Exception as err:
            raise TypeError(
                f"handler {handler!r}: a process cannot import it by name: {err}"
            ) from None
        self._what = handler, raw
        self._lock = threading.Lock()  # guards _closed: no child is started after close
        self._closed = False
        self._children: dict[int, _Child] = {}  # by the thread that it serves

    def run(self, job: Job) -> Outcome:
        """Have a child run the handler for a job whose body is RawJSON."""
        try:
            child = self._child()
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

    def _child(self) -> _Child:
        child = self._children.get(threading.get_ident())
        if child is None or not child.process.is_alive():
            with self._lock:
                if self._closed:
                    raise EOFError("the worker was stopped")
                child = self._children[threading.get_ident()] = _Child(*self._what)
        return child


class _Child:
    """One process, as its parent sees it.

    The parent sends the names of _Servant's methods and their arguments; the child
    sends an Outcome, or bytes to report.  Errors of this package can be pickled.
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
        job._on_end = lambda cause: self._tell_unwanted(job.id, cause)
        if job.cause is not None:
            self._tell_unwanted(job.id, job.cause)
        while True:
            told = self.pipe.recv()
            if isinstance(told, Outcome):
                return told
            error: GloomError | None = None
            try:
                job.progress(RawJSON._trusted(told))
            except GloomError as err:
                error = err
            except RuntimeError as err:
                error = ClosedError(str(err))
            self._send("reported", error)

    def _tell_unwanted(self, id: str, cause: GloomError) -> None:
        with contextlib.suppress(OSError):  # the child has died; run notices that
            self._send("unwanted", id, cause)

    def _send(self, *message: object) -> None:
        with self._sending:
            self.pipe.send(message)


# Runs in the child.


def _main(pipe: _Pipe, other: _Pipe, handler: _Handler, raw: bool) -> None:
    other.close()
    # Ctrl-C reaches the whole process group; the parent stops the children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    servant = _Servant(pipe, raw)
    threading.Thread(target=servant.listen, daemon=True).start()
    while True:
        servant.send(execute(handler, servant.jobs.get()))


class _Servant:
    """The child's side of the pipe: one thread reads it, the main thread runs jobs."""

    def __init__(self, pipe: _Pipe, raw: bool) -> None:
        self._pipe = pipe
        self._raw = raw
        self._sending = threading.RLock()  # a handler may use threads of its own
        self._current: Job | None = None
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[GloomError | None] = queue.SimpleQueue()

    def send(self, what: Outcome | bytes) -> None:
        with self._sending:
            self._pipe.send(what)

    def listen(self) -> None:
        try:
            while True:
                name, *args = self._pipe.recv()
                getattr(self, name)(*args)
        except (EOFError, OSError):
            os._exit(0)  # the parent has no more work, or is gone

    def begin(self, id: str, type: str, data: bytes, headers: Any) -> None:
        raw = RawJSON._trusted(data)
        job = self._current = Job(id, type, raw if self._raw else raw.value(), headers)
        job._report = self._report
        self.jobs.put(job)

    def unwanted(self, id: str, cause: GloomError) -> None:
        if self._current is not None and self._current.id == id:
            self._current._end(cause)

    def reported(self, error: GloomError | None) -> None:
        self._replies.put(error)

    def _report(self, body: bytes) -> None:
        with self._sending:
            self.send(body)
            error = self._replies.get()
        if error is not None:
            raise error
