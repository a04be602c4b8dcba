"""Runs handlers in processes.

Each child has a thread in the parent that talks to it through a pipe, so that
the death of a child fails the one job it was running and nothing else.
"""

from __future__ import annotations

import asyncio
import multiprocessing.connection
import os
import pickle
import queue
import signal
import threading
from multiprocessing.context import BaseContext
from typing import Any, List, Optional, Set

from ._socket import Run
from ._threads import Handler
from .errors import ClosedError, GloomError
from .failure import Outcome, answer, verdict
from .job import Job
from .body import RawJSON

_Pipe = multiprocessing.connection.Connection

# Tags of the tuples in the pipe.
_JOB, _UNWANTED, _TAKEN = "job", "unwanted", "taken"  # to the child
_REPORT, _DONE = "report", "done"  # from it


class ProcessRunner:
    """Children that are started when first needed and used again."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        context: BaseContext,
        raw: bool,
    ) -> None:
        self.loop = loop
        self.handler = handler
        self.context = context
        self.raw = raw
        self._idle: List[_Child] = []
        self._all: Set[_Child] = set()
        self._closed = False

    def start(self, run: Run) -> None:
        """Begin a run."""
        if self._idle:
            child = self._idle.pop()
        else:
            child = _Child(self)
            self._all.add(child)
        child.runs.put(run)

    def close(self, wait: bool) -> None:
        """End the children: idle ones, and others with wait=False, at once."""
        self._closed = True
        for child in list(self._all):
            if not wait:
                child.kill()
            child.runs.put(None)
        if wait:
            for child in list(self._all):
                child.thread.join()

    def finished(self, child: "_Child", run: Run, outcome: Outcome) -> None:
        """A child has done its job, or died of it; in the loop's thread."""
        if child.alive:
            self._idle.append(child)
        else:
            self._all.discard(child)
        run.finish(outcome)


class _Child:
    """One process, and the thread that talks to it."""

    def __init__(self, runner: ProcessRunner) -> None:
        self.runs: "queue.SimpleQueue[Optional[Run]]" = queue.SimpleQueue()
        self.alive = True
        self._runner = runner
        self._process: Any = None
        self._killed = False
        self._pipe: Optional[_Pipe] = None
        self._sending = threading.Lock()
        self.thread = threading.Thread(
            target=self._serve, name="gloom-child", daemon=True
        )
        self.thread.start()

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        with self._sending:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def _serve(self) -> None:
        while True:
            run = self.runs.get()
            if run is None:
                break
            try:
                if self._process is None or not self._process.is_alive():
                    self._spawn()
                outcome = self._execute(run)
            except (EOFError, OSError) as err:
                outcome = Outcome(reason=self._death(err))
            except Exception as err:  # such as a handler that cannot be pickled
                self.alive = False
                outcome = verdict(err)
            loop = self._runner.loop
            try:
                loop.call_soon_threadsafe(
                    self._runner.finished, self, run, outcome
                )
            except RuntimeError:
                pass  # stopped meanwhile
            if not self.alive:
                break
        if self._pipe is not None:
            self._pipe.close()  # which ends the process
        if self._process is not None:
            self._process.join()

    def _spawn(self) -> None:
        context = self._runner.context
        ours, theirs = context.Pipe()
        process = context.Process(  # type: ignore[attr-defined]
            target=_main,
            args=(theirs, ours, self._runner.handler, self._runner.raw),
            name="gloom-worker",
            daemon=True,
        )
        with self._sending:
            if self._killed:
                raise EOFError("stopped")
            process.start()
            self._process = process
            self._pipe = ours
        theirs.close()

    def _death(self, err: Exception) -> str:
        self.alive = False
        if self._process is None:
            return f"no process could be started: {err}"
        self._process.join()
        return f"worker process ended with exit code {self._process.exitcode}"

    def _execute(self, run: Run) -> Outcome:
        message = run.message
        body = message.raw("body").data
        self._send((_JOB, run.id, message.get("type"), body))

        def unwanted(cause: GloomError) -> None:
            try:
                self._send((_UNWANTED, run.id, _portable(cause)))
            except OSError:
                pass  # it has died, which the thread will notice

        def watch() -> None:
            if run.cause is not None:
                unwanted(run.cause)
            run.on_unwanted = unwanted

        assert self._pipe is not None
        self._runner.loop.call_soon_threadsafe(watch)
        while True:
            tag, value = self._pipe.recv()
            if tag == _DONE:
                return Outcome(*value)
            self._send((_TAKEN, self._report(run, value)))

    def _report(self, run: Run, body: bytes) -> Optional[GloomError]:
        try:
            asyncio.run_coroutine_threadsafe(
                run.report(body), self._runner.loop
            ).result()
        except GloomError as err:
            return _portable(err)
        except RuntimeError as err:
            return ClosedError(str(err))
        return None

    def _send(self, message: object) -> None:
        with self._sending:
            assert self._pipe is not None
            self._pipe.send(message)


def _portable(error: GloomError) -> GloomError:
    """An error that gets through a pipe."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return GloomError(str(error))
    return error


# What runs in the child.


def _main(pipe: _Pipe, other: _Pipe, handler: Handler, raw: bool) -> None:
    other.close()
    # Ctrl-C reaches the whole process group; the parent stops in good order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Servant(pipe, handler, raw).serve()


class _Servant:
    """The child's side of the pipe: one thread listens, the main one works."""

    def __init__(self, pipe: _Pipe, handler: Handler, raw: bool) -> None:
        self._pipe = pipe
        self._handler = handler
        self._raw = raw
        self._jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()
        self._taken: "queue.SimpleQueue[Optional[GloomError]]" = (
            queue.SimpleQueue()
        )
        self._current: Optional[Job] = None
        self._reporting = threading.Lock()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            job = self._jobs.get()
            try:
                outcome = answer(self._handler(job))
            except BaseException as err:
                outcome = verdict(err)
            with self._reporting:
                self._pipe.send((_DONE, tuple(outcome)))

    def _listen(self) -> None:
        try:
            while True:
                message = self._pipe.recv()
                tag = message[0]
                if tag == _JOB:
                    _, id, type, data = message
                    body = RawJSON._trusted(data)
                    self._current = Job(
                        id,
                        type,
                        body if self._raw else body.value(),
                        self._report,
                    )
                    self._jobs.put(self._current)
                elif tag == _UNWANTED:
                    job = self._current
                    if job is not None and job.id == message[1]:
                        job._end(message[2])
                elif tag == _TAKEN:
                    self._taken.put(message[1])
        except (EOFError, OSError):
            os._exit(0)  # the parent has no more work, or is gone

    def _report(self, body: bytes) -> None:
        with self._reporting:  # a handler may have threads of its own
            self._pipe.send((_REPORT, body))
            error = self._taken.get()
        if error is not None:
            raise error
