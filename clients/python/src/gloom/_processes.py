"""Runs handlers in processes, each at the hand of a thread.

The death of a process fails the one job it was running and nothing else.
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
from .failure import Outcome, execute, verdict
from .job import Job

_Pipe = multiprocessing.connection.Connection

# Tags of the tuples in the pipe.
_JOB, _UNWANTED, _TAKEN = "job", "unwanted", "taken"  # to the child
_REPORT, _DONE = "report", "done"  # from it


class Processes:
    """A child for each thread that calls, started when first needed and used again."""

    def __init__(self, handler: Callable[[Job], Any], raw: bool) -> None:
        try:
            pickle.dumps(handler)
        except Exception as err:
            raise TypeError(
                f"handler {handler!r}: a process cannot import it by name: {err}"
            ) from None
        self._handler = handler
        self._raw = raw
        # Forked ones would hold copies of connections and pipes open.
        self._context = multiprocessing.get_context("spawn")
        self._own = threading.local()  # the thread's child
        self._lock = threading.Lock()  # guards the fields below
        self._children: set[_Child] = set()
        self._closed = False

    def run(self, job: Job) -> Outcome:
        """Have a child run the handler for a job whose body is RawJSON."""
        child = None
        try:
            child = self._child()
            return child.run(job)
        except (EOFError, OSError) as err:
            if child is None:
                return Outcome(reason=f"no process could be started: {err}")
            return Outcome(reason=child.death())
        except Exception as err:  # such as a handler that cannot be pickled
            return verdict(err)

    def close(self, kill: bool) -> None:
        """End the children, what they run as well when kill is set."""
        with self._lock:
            self._closed = True
        for child in self._children:
            child.end(kill)

    def _child(self) -> _Child:
        child: _Child | None = getattr(self._own, "child", None)
        if child is not None and child.process.is_alive():
            return child
        with self._lock:
            if self._closed:
                raise EOFError("the worker was stopped")
            if child is not None:
                self._children.discard(child)
            child = self._own.child = _Child(self._context, self._handler, self._raw)
            self._children.add(child)
            return child


class _Child:
    """One process, as its parent sees it."""

    def __init__(self, context: Any, handler: Callable[[Job], Any], raw: bool) -> None:
        self._sending = threading.Lock()
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_main,
            args=(theirs, self._pipe, handler, raw),
            name="gloom-worker",
            daemon=True,
        )
        self.process.start()
        theirs.close()

    def run(self, job: Job) -> Outcome:
        """Run a job; EOFError or OSError when the process dies of it."""
        self._send(_JOB, job.id, job.type, job.body.data, job.headers)
        job._on_end = lambda cause: self._tell_unwanted(job.id, cause)
        if job.cause is not None:
            self._tell_unwanted(job.id, job.cause)
        while True:
            tag, value = self._pipe.recv()
            if tag == _DONE:
                return Outcome(*value)
            self._send(_TAKEN, self._report(job, value))

    def death(self) -> str:
        """What it died of."""
        self.process.join()
        return f"worker process ended with exit code {self.process.exitcode}"

    def end(self, kill: bool) -> None:
        """Let it end, once it has nothing to do or else at once."""
        if kill:
            self.process.kill()
        else:
            self._pipe.close()
        self.process.join()

    def _tell_unwanted(self, id: str, cause: GloomError) -> None:
        with contextlib.suppress(OSError):  # it has died, which run will notice
            self._send(_UNWANTED, id, _portable(cause))

    @staticmethod
    def _report(job: Job, body: bytes) -> GloomError | None:
        try:
            job.progress(RawJSON._trusted(body))
        except GloomError as err:
            return _portable(err)
        except RuntimeError as err:
            return ClosedError(str(err))
        return None

    def _send(self, *message: object) -> None:
        with self._sending:
            self._pipe.send(message)


def _portable(error: GloomError) -> GloomError:
    """An error that gets through a pipe."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return GloomError(str(error))
    return error


# What runs in the child.


def _main(pipe: _Pipe, other: _Pipe, handler: Callable[[Job], Any], raw: bool) -> None:
    other.close()
    # Ctrl-C reaches the whole process group; the parent stops in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Servant(pipe, handler, raw).serve()


class _Servant:
    """The child's side of the pipe: one thread listens, the main one works."""

    def __init__(self, pipe: _Pipe, handler: Callable[[Job], Any], raw: bool) -> None:
        self._pipe = pipe
        self._handler = handler
        self._raw = raw
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._taken: queue.SimpleQueue[GloomError | None] = queue.SimpleQueue()
        self._current: Job | None = None
        self._reporting = threading.Lock()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            outcome = execute(self._handler, self._jobs.get())
            with self._reporting:
                self._pipe.send((_DONE, tuple(outcome)))

    def _listen(self) -> None:
        try:
            while True:
                tag, *rest = self._pipe.recv()
                if tag == _JOB:
                    id, type, data, headers = rest
                    raw = RawJSON._trusted(data)
                    body = raw if self._raw else raw.value()
                    self._current = Job(id, type, body, headers)
                    self._current._report = self._report
                    self._jobs.put(self._current)
                elif tag == _UNWANTED:
                    job = self._current
                    if job is not None and job.id == rest[0]:
                        job._end(rest[1])
                elif tag == _TAKEN:
                    self._taken.put(rest[0])
        except (EOFError, OSError):
            os._exit(0)  # the parent has no more work, or is gone

    def _report(self, body: bytes) -> None:
        with self._reporting:  # a handler may have threads of its own
            self._pipe.send((_REPORT, body))
            error = self._taken.get()
        if error is not None:
            raise error
