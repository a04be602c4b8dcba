"""Whether to try to connect again, and how long to wait first."""

from __future__ import annotations

import random

from .errors import Draining, InvalidState, Overloaded, RefusedError


def hopeless(error: BaseException) -> bool:
    """Whether trying again would only get the same refusal."""
    return isinstance(error, RefusedError) and not isinstance(
        error, (Overloaded, Draining, InvalidState)
    )


class Backoff:
    """Waits between 0 and a limit that doubles from base up to a maximum.

    The waits are random, so the clients of a broker that restarts do not all
    reconnect at once.
    """

    def __init__(self, limits: tuple[float, float]) -> None:
        self._base, self._most = limits
        self._limit = self._base

    def wait(self) -> float:
        """Seconds to wait now; the next limit is twice as large."""
        seconds = random.uniform(0.0, self._limit)
        self._limit = min(self._limit * 2, self._most)
        return seconds

    def lasted(self, seconds: float) -> None:
        """Record how long a connection lasted.  Only one that lasted at least as long
        as the longest wait resets the limit, so a broker that hangs up at once is not
        tried more often."""
        if seconds >= self._most:
            self._limit = self._base
