"""An event loop in a thread of its own, and waiting with a limit."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import inspect
import os
import threading
from typing import Any, Awaitable, Callable, Concatenate, Coroutine, ParamSpec, TypeVar

from ._options import logger
from .errors import ClosedError, GloomError

P = ParamSpec("P")
T = TypeVar("T")


async def within(work: Awaitable[T], timeout: float | None) -> T:
    """Wait at most timeout seconds, then raise TimeoutError."""
    try:
        async with asyncio.timeout(timeout):
            return await work
    except TimeoutError:
        raise TimeoutError(f"timed out after {round(timeout or 0, 3):g} s") from None


def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run a coroutine as a task.  Only a bug in this package makes it raise; the
    exception is logged."""

    def log_failure(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("internal error", exc_info=task.exception())

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(log_failure)
    return task


def with_signature_of(
    twin: Callable[Concatenate[Any, P], Any]
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Give a method the parameters and the docstring of its twin for asyncio."""

    def adapt(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        returned = inspect.signature(method).return_annotation
        shown = inspect.signature(twin).replace(return_annotation=returned)
        vars(method)["__signature__"] = shown
        method.__doc__ = twin.__doc__
        return method

    return adapt


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], T]:
    """A blocking version of a method: runs it on _core in the loop of _thread."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result: T = self._thread.run(lambda: method(self._core, *args, **kwargs))
        except GloomError as err:
            raise err.with_traceback(None)  # which would show the loop
        return result

    return call


class LoopThread:
    """Runs an event loop in a thread from start until stopped, or until Python exits,
    and then a coroutine that cleans up.  To run something before or after that raises
    ClosedError, and so it does in a forked process, which does not have the thread.
    """

    def __init__(self, name: str, last: Callable[[], Coroutine[Any, Any, None]]):
        self._last = last
        self._pid = 0  # the process in which it was started
        # Guards _running: nothing is called in the loop once it is unset.  Reentrant,
        # because a signal handler may interrupt a call of the same thread.
        self._lock = threading.RLock()
        self._running = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; RuntimeError if it has already been started."""
        with self._lock:
            if self._pid:
                raise RuntimeError(f"{self._thread.name} was started before")
            self.loop = asyncio.new_event_loop()
            try:
                self._thread.start()
            except RuntimeError:  # there are too many threads
                self.loop.close()
                raise
            self._pid, self._running = os.getpid(), True
            atexit.register(self.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self._finish())
            self.loop.close()

    async def _finish(self) -> None:
        await self._last()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    @property
    def in_loop_thread(self) -> bool:
        """Whether the caller is the loop's own thread."""
        return threading.current_thread() is self._thread

    def check_outside(self) -> None:
        """Raise RuntimeError inside the loop's thread, where waiting would deadlock."""
        if self.in_loop_thread:
            raise RuntimeError("a callback must not wait for the event loop")

    def check_here(self) -> None:
        """Raise ClosedError in a forked process."""
        if self._pid not in (0, os.getpid()):
            raise ClosedError("closed: this is a forked process")

    def _while_running(self, function: Callable[[], T]) -> T:
        """Call a function, and keep the loop from being stopped meanwhile."""
        self.check_here()
        with self._lock:
            if not self._running:
                raise ClosedError("closed")
            return function()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop soon; do nothing unless it runs."""
        with contextlib.suppress(ClosedError):
            self._while_running(lambda: self.loop.call_soon_threadsafe(function, *args))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        self.check_outside()
        result = self._while_running(
            lambda: asyncio.run_coroutine_threadsafe(work(), self.loop)
        )
        try:
            while not result.done():  # a signal need not wake this thread
                concurrent.futures.wait([result], 1)
            return result.result()
        except concurrent.futures.CancelledError:
            raise ClosedError("closed") from None
        finally:
            result.cancel()  # if this thread was interrupted

    def run_last(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine in the loop, if that runs, wait for its end, and stop."""
        try:
            with contextlib.suppress(ClosedError):
                self.run(work)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the loop and wait for its thread, unless that would wait for the caller."""
        self.call(self._end)  # in its own thread no interrupt leaves half of that
        held = self._lock._is_owned()  # type: ignore[attr-defined]  # a signal handler
        if self._pid == os.getpid() and not self.in_loop_thread and not held:
            self._thread.join()

    def _end(self) -> None:
        with self._lock:
            if self._running:
                self._running = False
                atexit.unregister(self.stop)
                self.loop.stop()
