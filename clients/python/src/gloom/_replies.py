"""Which request a reply of the broker belongs to."""

from __future__ import annotations

from collections import deque
from typing import Callable, NamedTuple, Optional

from . import wire
from .errors import BrokerError, LostError, ProtocolError, from_code
from .wire import Message

#: Told None when a request was taken, else why not.
Done = Callable[[Optional[Exception]], None]


class _Request(NamedTuple):
    id: str | None
    done: Done
    silent: bool


class Replies:
    """A connection's requests in the order in which their replies come.

    It knows no socket, no clock and no thread.  Silent requests have no reply
    unless they are refused; one is known to be taken as soon as anything comes
    that the broker says only afterwards.
    """

    def __init__(self, addr: str) -> None:
        #: The broker.
        self.addr = addr
        #: Frames of which nothing was written.
        self.unsent: list[bytes] = []
        self._requests: deque[_Request] = deque()
        #: The ok that is being handled, or was last.
        self.reply: Message | None = None
        #: What the broker said before it closes.
        self.refusal: BrokerError | None = None

    def send(self, frame: bytes) -> None:
        """Send a frame that has no reply."""
        raise NotImplementedError

    def on_message(self, message: Message) -> None:
        """Called with each message that is no ok and no error."""

    def on_error(self, error: BrokerError) -> None:
        """Called with each error, to refuse a request with it or to end a job."""
        self.refuse(error)

    def ask(
        self, frame: bytes, done: Done, id: str | None = None, silent: bool = False
    ) -> None:
        """Send a request; done is called with its reply, or with what ended the
        connection before it came."""
        self._requests.append(_Request(id, done, silent))
        self.send(frame)

    @property
    def awaited(self) -> int:
        """Requests without a reply, silent ones included."""
        return len(self._requests)

    def receive(self, message: Message) -> None:
        """Handle one message.

        Raises ProtocolError, or the broker's own error when it is about the
        whole connection; the connection is then of no use.
        """
        if message.kind == wire.OK:
            request = self._next()
            if request is None:
                raise ProtocolError("an ok that nothing asked for")
            id = request.id
            if id is not None and message.id not in (None, id):
                raise ProtocolError(f"an ok for {message.id!r} instead of {id!r}")
            self.reply = message
            request.done(None)
        elif message.kind == wire.ERROR:
            code, reason = message.get("error"), message.get("reason")
            lost = message.get("cause") == "lost"
            self.on_error(from_code(code, reason, message.id, lost=lost))
        else:
            self.on_message(message)

    def refuse(self, error: BrokerError) -> None:
        """Take an error as the reply that is due, or as one about the connection
        when none is."""
        request = self._next()
        if request is None:
            raise error
        request.done(error)

    def is_due(self, id: str) -> bool:
        """Whether the next reply is one about this id."""
        return next((r.id == id for r in self._requests if not r.silent), False)

    def settle(self, id: str, error: Exception | None = None) -> bool:
        """Something came that tells of the silent request about this id, and so of
        all silent ones before it; False when it was not their turn."""
        for request in self._requests:
            if not request.silent:
                return False
            if request.id == id:
                break
        else:
            return False
        while True:
            request = self._requests.popleft()
            if request.id == id:
                request.done(error)
                return True
            request.done(None)

    def lose(self, cause: Exception) -> None:
        """No reply will come any more."""
        error = LostError(cause, self.addr)
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.done(error)

    def _next(self) -> _Request | None:
        """Take the request that the present reply belongs to.  The silent ones
        before it were taken: else their error had come by now."""
        while self._requests:
            request = self._requests.popleft()
            if not request.silent:
                return request
            request.done(None)
        return None
