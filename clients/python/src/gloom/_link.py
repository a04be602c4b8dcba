"""One connection to a broker: bytes out, messages in, its end, and when to try again.

It handles hello and ping, which concern the connection itself, and finds the request
that a reply belongs to; subclasses handle all other messages.
"""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import weakref
from collections import deque
from typing import Any, Callable, NamedTuple, cast

from . import errors, wire
from ._loop import within
from ._options import FRAME_SLACK, Event, Notice, Options, split_addr
from .errors import BrokerError, ClosedError, GloomError, ProtocolError, RefusedError
from .wire import FrameReader, Message

# After this many heartbeat intervals without a byte a connection is given up.  The broker,
# which sends the pings, gives up after two, so it normally decides first.
_SILENT_BEATS = 3

# The maximum number of bytes that wait for the end of a round of the loop.
_MAX_BATCH = 256 * 1024

#: Called with None when a request was accepted, else with the error.
Done = Callable[[Exception | None], None]


class _Request(NamedTuple):
    done: Done
    id: str | None  # the job that it is about
    silent: bool  # it gets a reply only if it is refused


class Link(asyncio.Protocol):
    """A connection.  All methods must be called in the event loop's thread.

    Replies come in the order of the requests.  A silent request is known to be accepted
    as soon as a frame comes that the broker sends only after it.
    """

    def __init__(self, options: Options, addr: str) -> None:
        self.addr = addr  # of the broker
        self.unsent: list[bytes] = []  # frames not written yet
        self.reply: Message | None = None  # the last ok
        self.refusal: BrokerError | None = None  # sent before the broker closes it
        # Requests without a reply, silent ones included, in the order of the replies.
        self._requests: deque[_Request] = deque()
        self.jobs: dict[str, Any] = {}  # those that have not ended, by id
        self._retired = ""  # why it closes when it is idle
        self._loop = asyncio.get_running_loop()
        self._options = options
        self.max_frame = options.max_frame  # largest that the broker accepts, in bytes
        #: A future that gets the cause when the connection is gone.
        self.lost: asyncio.Future[Exception] = self._loop.create_future()
        self.cause: Exception | None = None  # why it ended
        self.writable = True  # whether more bytes may be written now
        self._mute = False  # whether the broker was told that nothing follows
        self._reader = FrameReader(2**30 + FRAME_SLACK)  # no broker has a larger limit
        self._transport: asyncio.Transport | None = None
        self._out_size = 0
        self.made = 0.0  # when it was connected, by the loop's clock
        self._last_byte = 0.0
        self._watch: asyncio.TimerHandle | None = None

    def on_message(self, message: Message) -> None:
        """Called with each message that is neither a ping, an ok nor an error."""

    # Actions of this side.

    async def open(self) -> None:
        """Connect, including TLS and hello.

        Raises OSError (ssl.SSLError, TimeoutError, …) or the broker's error.
        """
        limit = self._options.dial_timeout
        try:
            await within(self._open(), limit)
        except BaseException as err:
            self.abort(ConnectionAbortedError("given up"))
            if isinstance(err, TimeoutError):
                raise TimeoutError(f"no connection within {limit:g} s") from None
            raise

    def send(self, frame: bytes) -> None:
        """Send a frame, together with others of this round of the loop.  It stays in
        unsent if the connection has ended."""
        if not self.unsent and self.writable:
            self._loop.call_soon(self._flush)
        self.unsent.append(frame)
        self._out_size += len(frame)
        if self.writable and self._out_size > _MAX_BATCH:
            self._write()  # so that writing is paused in time

    @property
    def idle(self) -> bool:
        """Whether no job and no request is pending."""
        return not self.jobs and not self._requests

    def retire(self, why: str) -> None:
        """Close as soon as it is idle and the waiting frames are sent."""
        self._retired = why
        self._close_idle()

    def _close_idle(self) -> None:
        if self._retired and self.idle and self.cause is None:
            self._write()
            self.cause = ClosedError(self._retired)
            if self._transport is not None:
                self._transport.close()

    def end_output(self) -> None:
        """Shut down this side of the connection; frames from the broker are still read."""
        if self.cause is not None or self._transport is None:
            return
        self._write()
        self._mute = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
            return
        with contextlib.suppress(OSError):  # TLS cannot do it, but its socket can
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)

    def abort(self, cause: Exception) -> None:
        """Drop the connection; this cause becomes the result of lost."""
        self.cause = self.cause or cause
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self.cause is None and self.writable:
            self._write()

    def _write(self) -> None:
        mute = self._mute or self.cause is not None
        if self._transport is not None and self.unsent and not mute:
            out, self.unsent, self._out_size = self.unsent, [], 0
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # Requests and their replies.

    def ask(
        self, frame: bytes, done: Done, id: str | None = None, silent: bool = False
    ) -> None:
        """Send a request; done is called with its reply, or with the error that ended
        the connection first."""
        self._requests.append(_Request(done, id, silent))
        self.send(frame)

    def receive(self, message: Message) -> None:
        """Handle one message.  Raises ProtocolError, or the broker's error about the
        whole connection, which cannot be used after that."""
        if message.kind == wire.ERROR:
            code, reason = message.get("error"), message.get("reason")
            lost = message.get("cause") == "lost"
            self.on_error(errors.from_code(code, reason, message.id, lost=lost))
        elif message.kind != wire.OK:
            self.on_message(message)
        else:
            request = self._next_request()
            if request is None:
                raise ProtocolError("an ok without a request")
            if request.id is not None and message.id not in (None, request.id):
                raise ProtocolError(f"an ok for {message.id!r}, not {request.id!r}")
            self.reply = message
            self._complete(request)

    def on_error(self, error: BrokerError) -> None:
        """Called with each error.  It is the reply to the next request or, if none is
        waiting, about the connection."""
        if isinstance(error, (errors.SizeError, errors.Unauthorized)):
            self.refusal = error
        request = self._next_request()
        if request is None:
            raise error
        self._complete(request, error)

    def _next_request(self, id: str | None = None) -> _Request | None:
        """The request whose reply comes next: the first that is not silent, or an
        earlier silent one about this id."""
        for request in self._requests:
            if not request.silent or request.id == id:
                return request
        return None

    def _complete(self, request: _Request, error: Exception | None = None) -> None:
        """Complete a request.  The silent ones before it were accepted, or their errors
        would have come first."""
        while (first := self._requests.popleft()) is not request:
            first.done(None)
        request.done(error)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.made = self._loop.time()
        _links.add(self)
        if self.cause is not None:
            self._transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            _keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        self._last_byte = self._loop.time()
        try:
            for payload in self._reader.feed(data):
                if self.cause is not None:
                    return
                message = wire.read(payload)
                if message.kind == wire.PING_KIND:
                    self.send(wire.PONG)
                else:
                    self.receive(message)
            self._close_idle()
        except GloomError as err:
            self.abort(err)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self.cause is None:
            where = " in the middle of a frame" if self._reader.partial else ""
            self.cause = exc or ConnectionResetError(f"closed by the broker{where}")
        self.lost.set_result(self.refusal or self.cause)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._flush()

    # Connecting, hello and heartbeat.

    async def _open(self) -> None:
        options, loop = self._options, self._loop
        if options.local:
            with contextlib.suppress(OSError):  # absent, or no permission
                await loop.create_unix_connection(lambda: self, options.local)
        if self._transport is None:
            path, host, port, wants_tls = split_addr(self.addr)
            tls = options.tls or (ssl.create_default_context() if wants_tls else None)
            name = options.server_hostname or host or "localhost" if tls else None
            how: Any = {"ssl": tls, "server_hostname": name}
            if path:
                await loop.create_unix_connection(lambda: self, path, **how)
            else:
                await loop.create_connection(lambda: self, host, port, **how)
        if options.token or options.client or options.heartbeat:
            await self._hello()

    async def _hello(self) -> None:
        """Send a hello and learn the broker's limits.

        Raises the broker's refusal, or the error that ended the connection.
        """
        options = self._options
        replied = self._loop.create_future()
        beat = round(options.heartbeat * 1000) or None
        hello = wire.request(
            "hello", token=options.token, client=options.client, heartbeat_ms=beat
        )
        self.ask(hello, replied.set_result)
        await asyncio.wait({replied, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        error = replied.result() if replied.done() else self.lost.result()
        if error is not None:
            raise error
        assert self.reply is not None
        self.max_frame = wire.limit(self.reply, "max_frame") or self.max_frame
        told = wire.limit(self.reply, "max_frame_out")
        self._reader.max_frame = told or self.max_frame + FRAME_SLACK
        if options.heartbeat:
            self._watch_silence()

    def _watch_silence(self) -> None:
        patience = _SILENT_BEATS * self._options.heartbeat
        silent = self._loop.time() - self._last_byte
        if silent >= patience:
            self.abort(TimeoutError(f"no byte came for {silent:.1f} s"))
            return
        self._watch = self._loop.call_later(patience - silent, self._watch_silence)


# The connections of this process.
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _drop_inherited() -> None:
    """In a forked process, drop its copies of the connections: while they are open, the
    broker does not see that the parent has closed its own."""
    null = os.open(os.devnull, os.O_RDWR)
    for link in _links:
        assert link._transport is not None
        sock = link._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            # The descriptor stays open on the null device, because objects copied from
            # the parent still use its number.
            os.dup2(null, sock.fileno(), inheritable=False)
    os.close(null)
    _links.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited)


def _keep_alive(sock: socket.socket) -> None:
    """Notice within a minute that the broker's machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    times = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
    times["TCP_USER_TIMEOUT"] = 60_000  # keepalive does not probe unacknowledged data
    for name, value in times.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_permanent(error: BaseException) -> bool:
    """Whether trying again would only get the same refusal."""
    return isinstance(error, RefusedError) and not isinstance(
        error, (errors.Overloaded, errors.Draining, errors.InvalidState)
    )


class Backoff:
    """Waits between 0 and a limit that doubles from base up to a maximum.

    The waits are random, so the clients of a broker that restarts do not all
    reconnect at once.
    """

    def __init__(self, options: Options) -> None:
        self._base, self._most = options.backoff
        self._limit = self._base
        self._report = options.report

    def failed(self, addr: str, error: Exception, event: Event = Event.FAILED) -> float:
        """Report a failed attempt; returns the seconds to wait before the next one."""
        seconds = random.uniform(0.0, self._limit)
        self._limit = min(self._limit * 2, self._most)
        self._report(Notice(event, addr, error, seconds))
        return seconds

    def lost(self, link: Link) -> float:
        """Tell of a lost connection, in the same way.  Only one that lasted at least as
        long as the longest wait resets the limit, so a broker that hangs up at once is
        not tried more often."""
        if link._loop.time() - link.made >= self._most:
            self._limit = self._base
        return self.failed(link.addr, link.lost.result(), Event.LOST)
