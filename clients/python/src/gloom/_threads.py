"""Runs handlers in threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, Callable

from ._socket import Run
from .errors import ClosedError
from .failure import answer, verdict
from .job import Job

Handler = Callable[[Job], Any]


class ThreadRunner:
    """A pool of threads, as many as handlers may run at once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        threads: int,
        raw: bool,
    ) -> None:
        self._loop = loop
        self._handler = handler
        self._raw = raw
        self._threads = concurrent.futures.ThreadPoolExecutor(
            threads, thread_name_prefix="gloom-worker"
        )

    def start(self, run: Run) -> None:
        """Begin a run."""
        message = run.message
        job = Job(
            run.id,
            message.get("type"),
            message.raw("body") if self._raw else message.get("body"),
            lambda body: self._report(run, body),
        )
        run.on_unwanted = job._end
        self._threads.submit(self._work, run, job)

    def close(self, wait: bool) -> None:
        """Threads cannot be ended: those that run go on until they return."""
        self._threads.shutdown(wait=wait)

    def _work(self, run: Run, job: Job) -> None:
        try:
            outcome = answer(self._handler(job))
        except BaseException as err:
            outcome = verdict(err)
        try:
            self._loop.call_soon_threadsafe(run.finish, outcome)
        except RuntimeError:
            pass  # stopped meanwhile

    def _report(self, run: Run, body: bytes) -> None:
        work = run.report(body)
        try:
            sent = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise ClosedError("the worker was stopped") from None
        while True:
            try:
                return sent.result(1.0)
            except concurrent.futures.TimeoutError:
                if self._loop.is_closed():  # too late to be told
                    raise ClosedError("the worker was stopped") from None
