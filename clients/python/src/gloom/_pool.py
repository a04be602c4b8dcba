"""The sockets of a worker: joined to all brokers, rejoined when lost."""

from __future__ import annotations

import asyncio
from typing import Callable, List, Optional, Protocol

from ._backoff import Backoff
from ._link import Link, dial
from ._options import Event, Notice, Options
from ._session import hopeless, start
from ._socket import Run, Socket
from .errors import ClosedError


class Runner(Protocol):
    """Executes runs; called in the event loop's thread."""

    def start(self, run: Run) -> None:
        """Begin a run, and call its finish in the loop's thread later."""

    def close(self, wait: bool) -> None:
        """No run will be started any more; wait for those that run, or drop
        them where that can be done."""


class _Seat:
    """One socket's place: what is connected, or trying to be."""

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.socket: Optional[Socket] = None
        self.task: "Optional[asyncio.Task[None]]" = None


class Pool:
    """Keeps a worker's sockets joined until it leaves.  Belongs to the event
    loop's thread.

    on_joined: called with each join.  on_done: called once, when every socket
    has left or has been given up.
    """

    def __init__(
        self,
        options: Options,
        type: str,
        concurrency: int,
        prefetch: int,
        runner: Runner,
        on_joined: Callable[[], None],
        on_done: Callable[[], None],
    ) -> None:
        self._options = options
        self._type = type
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._runner = runner
        self._on_joined = on_joined
        self._on_done = on_done
        self._seats: List[_Seat] = []
        self._leaving = False
        #: Why sockets were given up.
        self.refused: List[Exception] = []

    def start(self) -> None:
        """Connect and join, in the background."""
        sockets = 1 if self._prefetch else self._concurrency
        self._seats = [
            _Seat(addr) for addr in self._options.addrs for _ in range(sockets)
        ]
        left = len(self._seats)

        def over(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                self._on_done()

        for seat in self._seats:
            seat.task = start(self._keep_joined(seat))
            seat.task.add_done_callback(over)

    def leave(self) -> None:
        """Take no more jobs; sockets end when all is answered."""
        if self._leaving:
            return
        self._leaving = True
        for seat in self._seats:
            if seat.socket is not None:
                seat.socket.leave()
            elif seat.task is not None:
                seat.task.cancel()  # connecting, or waiting to

    def abort(self) -> None:
        """Drop all connections and wait for no handler."""
        self._leaving = True
        error = ClosedError("the worker was stopped")
        for seat in self._seats:
            if seat.socket is not None:
                seat.socket.link.abort(error)
                seat.socket.abandon(error)
            if seat.task is not None:
                seat.task.cancel()

    async def _keep_joined(self, seat: _Seat) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._options.backoff)
        while not self._leaving:
            since = loop.time()
            joined = False
            try:
                link = await dial(self._options, seat.addr)
            except Exception as err:
                cause = err
            else:
                socket = seat.socket = self._seat(seat.addr, link)
                try:
                    cause = await socket.serve()
                finally:
                    seat.socket = None
                joined = socket.joined
            if self._leaving:
                return
            if hopeless(cause):
                self.refused.append(cause)
                self._options.tell(Notice(Event.GIVEN_UP, seat.addr, cause))
                return
            if joined:
                backoff.lasted(loop.time() - since)
            event = Event.LOST if joined else Event.FAILED
            wait = backoff.wait()
            self._options.tell(Notice(event, seat.addr, cause, wait))
            await asyncio.sleep(wait)

    def _seat(self, addr: str, link: Link) -> Socket:
        timeout = self._options.dial_timeout

        def joined() -> None:
            late.cancel()
            self._options.tell(Notice(Event.JOINED, addr))
            self._on_joined()

        late = asyncio.get_running_loop().call_later(
            timeout,
            lambda: link.abort(
                TimeoutError(f"no answer to join within {timeout:g} s")
            ),
        )
        link.lost.add_done_callback(lambda _: late.cancel())
        socket = Socket(
            link,
            self._runner.start,
            joined,
            self._type,
            self._prefetch,
            self._concurrency if self._prefetch else 1,
            self._options.compat,
        )
        socket.join()
        return socket
