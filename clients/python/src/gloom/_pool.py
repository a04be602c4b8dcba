"""The sockets of a worker: joined to all brokers, rejoined when lost."""

from __future__ import annotations

import asyncio

from ._backoff import Backoff, hopeless
from ._loop import start
from ._options import Event, Notice, Options
from ._socket import Service, Socket
from .errors import ClosedError


class _Seat:
    """One socket's place: what is connected, or trying to be."""

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.socket: Socket | None = None
        self.task: asyncio.Task[None] | None = None


class Pool:
    """Keeps a worker's sockets joined until it leaves, so many for each broker.
    Belongs to the event loop's thread."""

    def __init__(self, options: Options, service: Service, sockets: int) -> None:
        self._options = options
        self._service = service
        self._leaving = False
        #: Whether a socket has joined.
        self.joined = False
        #: Set when every socket has left or has been given up.
        self.over = asyncio.Event()
        #: Set when a socket joins, when it is over, and when it leaves.
        self.news = asyncio.Event()
        #: Why sockets were given up.
        self.refused: list[Exception] = []
        self._seats = [_Seat(addr) for addr in options.addrs for _ in range(sockets)]
        self._left = len(self._seats)
        for seat in self._seats:
            seat.task = start(self._keep_joined(seat))
            seat.task.add_done_callback(self._over)

    def _over(self, _: object) -> None:
        self._left -= 1
        if not self._left:
            self.over.set()
            self.news.set()

    def leave(self) -> None:
        """Take no more jobs; sockets end when all is answered."""
        if self._leaving:
            return
        self._leaving = True
        self.news.set()
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
                seat.socket.abort(error)
                seat.socket.abandon(error)
            if seat.task is not None:
                seat.task.cancel()

    async def _keep_joined(self, seat: _Seat) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._options.backoff)
        while not self._leaving:
            since = loop.time()
            socket = Socket(self._options, seat.addr, self._service, self._joined)
            try:
                await socket.open()
            except Exception as err:
                cause = err
            else:
                seat.socket = socket
                try:
                    cause = await socket.serve()
                finally:
                    seat.socket = None
            if self._leaving:
                return
            if hopeless(cause):
                self.refused.append(cause)
                self._options.tell(Notice(Event.GIVEN_UP, seat.addr, cause))
                return
            if socket.joined:
                backoff.lasted(loop.time() - since)
            event = Event.LOST if socket.joined else Event.FAILED
            wait = backoff.wait()
            self._options.tell(Notice(event, seat.addr, cause, wait))
            await asyncio.sleep(wait)

    def _joined(self, addr: str) -> None:
        self._options.tell(Notice(Event.JOINED, addr))
        self.joined = True
        self.news.set()
