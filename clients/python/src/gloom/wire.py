"""Frames and messages of the Gloom protocol, without sockets.

A frame is a 32-bit length in network byte order, then that many bytes of
JSON holding one object.  This module splits a byte stream into frames, decodes
them, and encodes the requests of submitters and workers.  It does not check their
order.
"""

import struct
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping

from .body import RawJSON, decode, encode, skip, value_at
from .errors import FrameTooLarge, ProtocolError, SizeError

HEADER = struct.Struct(">I")

MAX_FRAME = 16 * 1024 * 1024  # bytes of a payload, unless set otherwise
MAX_NAME = 1024  # UTF-8 bytes of an id or a type
MAX_MS = 31_536_000_000  # the largest duration, a year
MAX_BACKOFF_MS = 86_400_000  # a day
MAX_RETRIES = 1000

Fields = Mapping[str, Any]  # of a frame, or the options that they are made from


class FrameReader:
    """Cuts payloads out of a stream that arrives in pieces of any size."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add the next bytes of the stream, and yield each payload that is complete.

        Raises FrameTooLarge as soon as a length beyond max_frame is announced; the
        stream cannot be read after that.
        """
        buffer, start = self._buffer, 0
        buffer += data
        try:
            while len(buffer) - start >= HEADER.size:
                (size,) = HEADER.unpack_from(buffer, start)
                if size > self.max_frame:
                    raise FrameTooLarge(size, self.max_frame)
                end = start + HEADER.size + size
                if len(buffer) < end:
                    return
                begin, start = start + HEADER.size, end
                yield bytes(memoryview(buffer)[begin:end])
        finally:
            del buffer[:start]

    @property
    def partial(self) -> bool:
        """Whether part of a frame has been read, after all payloads of a feed."""
        return bool(self._buffer)


@dataclass(eq=False, slots=True)
class Message:
    """One frame of the broker."""

    kind: str | None  # None for a kind that this client does not know
    values: dict[str, Any]  # if a key occurs twice, the last one counts
    text: str
    id: str | None = None  # the job that it is about, if any

    def get(self, key: str) -> Any:
        """The value of a key, None if absent."""
        return self.values.get(key)

    def raw(self, key: str) -> RawJSON:
        """The value of a key as the bytes received; KeyError if absent."""
        if key not in self.values:
            raise KeyError(key)
        text, found = self.text, ""
        at = skip(text, text.index("{") + 1)
        while text[at] != "}":  # it is known to be a valid object
            name, at = value_at(text, at)
            begin = skip(text, skip(text, at) + 1)
            _, at = value_at(text, begin)
            if name == key:
                found = text[begin:at]
            at = skip(text, at)
            if text[at] == ",":
                at = skip(text, at + 1)
        return RawJSON._trusted(found.encode("utf-8"))

    def string(self, key: str) -> str:
        """The string value of a key. Raises ProtocolError if it is not a string."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise ProtocolError(f"{self.kind} frame: {key} is not a string")
        return value


OK, ERROR, JOB, RESULT = "ok", "error", "job", "result"
PROGRESS, CANCEL, PING_KIND = "progress", "cancel", "ping"


def _kind(values: dict[str, Any]) -> str | None:
    if "error" in values:
        return ERROR
    if "action" in values:
        action = values["action"]
        return action if action in (JOB, CANCEL, PING_KIND) else None
    if "ok" in values:
        return OK
    if "id" in values and "body" in values:
        return RESULT
    return PROGRESS if "id" in values and "progress" in values else None


def read(payload: bytes) -> Message:
    """Read a frame of the broker; raise ProtocolError if it is not a message."""
    values, text = decode(payload)
    if not isinstance(values, dict):
        raise ProtocolError("the frame's JSON is not an object")
    kind = _kind(values)
    message = Message(kind, values, text)
    if kind == ERROR:
        message.string("error")
        message.string("reason")
    elif kind == OK and values["ok"] is not True:
        raise ProtocolError(f"ok is {values['ok']!r} instead of true")
    elif kind == JOB:
        message.string("type")
        if "body" not in values:
            raise ProtocolError("job frame: body is missing")
    optional = kind in (OK, ERROR) and values.get("id") is None
    if kind not in (None, PING_KIND) and not optional:
        message.id = message.string("id")
    return message


def limit(message: Message, key: str) -> int | None:
    """One of the limits in the reply to hello, None if it is absent."""
    limits = message.get("limits")
    value: int | None = limits.get(key) if isinstance(limits, dict) else None
    if value is not None and (type(value) is not int or value < 0):
        raise ProtocolError(f"limit {key} is {value!r}")
    return value


def check_name(field: str, value: object) -> str:
    """Return value if it is a valid id or type, else raise TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{field} {value!r}: not a str")
    if not value:
        raise ValueError(f"{field}: empty")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise ValueError(f"{field} {value!r}: contains an unpaired surrogate") from None
    if size > MAX_NAME:
        begin = f"{field} {value[:40] + '...'!r}"
        raise ValueError(f"{begin}: {size} bytes, at most {MAX_NAME}")
    return value


def names(field: str, values: object) -> list[str]:
    """Return a list of valid names; TypeError or ValueError if values is not one."""
    kinds = str, bytes, Mapping  # iterable, but not lists of names
    if isinstance(values, kinds) or not isinstance(values, Iterable):
        raise TypeError(f"{field} {values!r}: not a list of names")
    return [check_name(field, value) for value in values]


def request(action: str, **fields: object) -> bytes:
    """A frame for the broker.  Values that are bytes are sent verbatim; those that are
    None are left out."""
    said: dict[str, object] = {"action": action}
    raw: list[bytes] = []
    for key, value in fields.items():
        if isinstance(value, bytes):
            raw += (b',"', key.encode(), b'":', value)
        elif value is not None:
            said[key] = value
    parts = [encode(said).encode("utf-8")[:-1], *raw, b"}"]
    return b"".join([HEADER.pack(sum(map(len, parts))), *parts])


def check_size(frame: bytes, limit: int, id: str) -> None:
    """Raise SizeError if the payload of a frame about a job is larger than the limit."""
    size = len(frame) - HEADER.size
    if size > limit:
        raise SizeError(f"frame of {size} bytes, at most {limit} are allowed", id)


def attach(id: str, on_progress: object) -> bytes:
    """An attach frame."""
    return request("attach", id=id, progress=on_progress is not None or None)


PONG = request("pong")
