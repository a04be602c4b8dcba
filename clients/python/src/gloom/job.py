"""The jobs that handlers receive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from .body import encode_body
from .errors import GloomError, again

if TYPE_CHECKING:
    from ._socket import Socket


class JobBase:
    """What the jobs of both kinds of handlers share."""

    _socket: Socket  # the connection it came from

    def __init__(
        self, id: str, type: str, body: Any, headers: dict[str, Any] | None
    ) -> None:
        self.id = id
        self.type = type
        self.body = body  # the Python value, or RawJSON from a worker with raw
        #: The headers from the submitter; None if there are none or the worker did not
        #: ask for them.
        self.headers = headers
        #: Why nobody waits for this run any more: Cancelled, LostError, or
        #: ClosedError when stop has timed out.  None while somebody waits.
        self.cause: GloomError | None = None
        self._on_end: Callable[[GloomError], object] | None = None

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for this run any more.  What the handler returns is then
        discarded, but until it returns it counts against the concurrency."""
        return self.cause is not None

    def _end(self, cause: GloomError) -> None:
        """Record that nobody waits for the run any more; the first cause counts."""
        if self.cause is None:
            self.cause = cause
            if self._on_end is not None:
                self._on_end(cause)

    def _news(self, body: Any) -> bytes:
        data = encode_body(body)
        if self.cause is not None:
            raise again(self.cause)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, type={self.type!r})"


class Job(JobBase):
    """A job for a handler that runs in a thread or a process."""

    _report: Callable[[bytes], None]  # sends progress

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ended = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep for timeout seconds, or until nobody waits for this run any more;
        returns unwanted."""
        return self._ended.wait(timeout)

    def progress(self, body: Any) -> None:
        """Send progress to a submitter that asked for it.

        Does not wait for the broker, unless 64 reports are unanswered.  Raises cause
        if nobody waits for the run any more, TypeError or ValueError for values that
        JSON cannot express, and SizeError.
        """
        self._report(self._news(body))

    def _end(self, cause: GloomError) -> None:
        super()._end(cause)
        self._ended.set()


class AsyncJob(JobBase):
    """A job for a handler that is a coroutine, whose task is cancelled when nobody
    waits for the run any more."""

    async def progress(self, body: Any) -> None:
        """Send progress to a submitter that asked for it; like Job.progress."""
        await self._socket.report(self, self._news(body))
