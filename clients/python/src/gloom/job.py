"""What a handler receives."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional

from .body import encode_body
from .errors import GloomError, again

__all__ = ["Job"]


class Job:
    """A job for a handler that runs in a thread or a process."""

    def __init__(
        self,
        id: str,
        type: str,
        body: Any,
        headers: Optional[Dict[str, Any]],
        report: Callable[[bytes], None],
    ) -> None:
        self.id = id
        self.type = type
        #: The Python value, or RawJSON from a worker with raw.
        self.body = body
        #: What the submitter gave it; None when that is nothing, or not asked for.
        self.headers = headers
        #: Why nobody waits for this run any more: Cancelled, LostError, or
        #: ClosedError when stop has run out of time.  None while somebody does.
        self.cause: Optional[GloomError] = None
        self._report = report
        self._unwanted = threading.Event()
        self._on_end: Optional[Callable[[GloomError], None]] = None

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for this run any more.  What the handler
        returns then is discarded, but until it returns its place is taken."""
        return self._unwanted.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Sleep for timeout seconds, but not longer than somebody waits for
        this run; returns unwanted."""
        return self._unwanted.wait(timeout)

    def progress(self, body: Any) -> None:
        """Send news to a submitter that asked for it.

        Does not wait for the broker, but for room when many reports are
        unanswered.  Raises the cause when nobody waits for the run any more,
        TypeError and ValueError for what JSON cannot express, SizeError, and
        Unsupported when the broker knows no progress.
        """
        data = encode_body(body)
        if self.cause is not None:
            raise again(self.cause)
        self._report(data)

    def _end(self, cause: GloomError) -> None:
        self.cause = cause
        self._unwanted.set()
        if self._on_end is not None:
            self._on_end(cause)

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, type={self.type!r})"
