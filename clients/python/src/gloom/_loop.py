"""An event loop in a thread of its own, and waiting with a limit."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from typing import Any, Awaitable, Callable, Coroutine, Optional, TypeVar

T = TypeVar("T")


async def within(work: "Awaitable[T]", timeout: Optional[float]) -> T:
    """Wait at most so many seconds, then raise asyncio.TimeoutError.

    Before Python 3.12, asyncio.wait_for may swallow a cancellation.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout)
    except BaseException:
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        raise asyncio.TimeoutError(f"not within {timeout:g} s")
    return task.result()


class LoopOwner:
    """Whose loop it is; told what happens to it."""

    def _at_exit(self) -> None:
        """Python ends while the loop runs: to stop the loop."""
        raise NotImplementedError

    def _forked(self) -> None:
        """This is a forked process, where the loop's thread does not exist."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The loop has ended; still in its thread."""


class LoopThread:
    """Runs an event loop until stopped."""

    def __init__(self, name: str, owner: LoopOwner) -> None:
        self.loop = asyncio.new_event_loop()
        self.owner = weakref.ref(owner)
        self._thread = threading.Thread(
            target=self._run, name=name, daemon=True
        )
        self._stopping = False
        self._pid = os.getpid()
        _running.add(self)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self._finish())
            self.loop.close()
            owner = self.owner()
            if owner is not None:
                owner._ended()

    async def _finish(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()

    @property
    def inside(self) -> bool:
        """Whether the caller is the loop's own thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop soon; RuntimeError when it has ended."""
        if self._pid != os.getpid():
            raise RuntimeError("the loop runs in another process")
        self.loop.call_soon_threadsafe(function, *args)

    def run(self, work: "Coroutine[Any, Any, T]") -> T:
        """Run a coroutine in the loop and wait for its result."""
        if self.inside:
            work.close()
            raise RuntimeError("a callback must not wait for the event loop")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """End the loop and, unless called inside it, wait for its thread."""
        _running.discard(self)
        if not self._stopping:
            self._stopping = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.inside:
            self._thread.join()


_running: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for thread in list(_running):
        owner = thread.owner()
        if owner is not None:
            owner._at_exit()


def _forget_all() -> None:
    for thread in list(_running):
        owner = thread.owner()
        if owner is not None:
            owner._forked()
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
