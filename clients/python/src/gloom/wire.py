"""Frames and messages of the Gloom protocol, without sockets.

A frame is a 32-bit length in network byte order, then that many bytes of
JSON holding one object.  This module cuts frames out of a byte stream, reads
the object's top level while keeping every value's bytes, and encodes what
submitters and workers send.  It does not know who may say what when.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, Optional, Tuple

from ._json import key_at, skip, text_of, value_at
from .body import RawJSON
from .errors import FrameTooLarge, ProtocolError

HEADER = struct.Struct(">I")
HEADER_LEN = HEADER.size

#: Payload bytes a peer accepts unless it says otherwise (16 MiB).
MAX_FRAME = 16 * 1024 * 1024
#: UTF-8 bytes an id or a type may have.
MAX_NAME = 1024
#: Largest duration on the wire: a year, in milliseconds.
MAX_MS = 31_536_000_000
#: Largest backoff: a day, in milliseconds.
MAX_BACKOFF_MS = 86_400_000
#: Most retries of a job.
MAX_RETRIES = 1000


class FrameReader:
    """Cuts payloads out of a stream that arrives in pieces of any size."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next(self) -> Optional[bytes]:
        """The next payload, or None while its bytes are not all there.

        Raises FrameTooLarge as soon as a length beyond max_frame is
        announced; the stream is of no use after that.
        """
        have = len(self._buffer) - self._start
        if have < HEADER_LEN:
            return None
        (size,) = HEADER.unpack_from(self._buffer, self._start)
        if size > self.max_frame:
            raise FrameTooLarge(size, self.max_frame)
        if have < HEADER_LEN + size:
            return None
        begin = self._start + HEADER_LEN
        self._start = begin + size
        return bytes(memoryview(self._buffer)[begin : self._start])

    @property
    def partial(self) -> bool:
        """Whether the stream stands in the middle of a frame."""
        return len(self._buffer) > self._start


class Message:
    """The top level of one frame: every value, and the bytes it came as."""

    __slots__ = ("kind", "id", "values", "_text", "_spans")

    def __init__(
        self,
        values: Dict[str, Any],
        text: str,
        spans: Dict[str, Tuple[int, int]],
    ) -> None:
        #: What it is; set by read.
        self.kind: Optional[str] = None
        #: Which job it is about, if any; set by read.
        self.id: Optional[str] = None
        self.values = values
        self._text = text
        self._spans = spans

    def get(self, key: str) -> Any:
        """The value of a key, None when absent."""
        return self.values.get(key)

    def raw(self, key: str) -> RawJSON:
        """The value of a key as the bytes it came as; KeyError when absent."""
        begin, end = self._spans[key]
        return RawJSON._trusted(self._text[begin:end].encode("utf-8"))

    def string(self, key: str) -> str:
        """The string under a key; ProtocolError when there is none."""
        value = self.values.get(key)
        if not isinstance(value, str):
            raise ProtocolError(f"{self.kind} frame: {key} is not a string")
        return value


def decode(payload: bytes) -> Message:
    """Read one payload.  Of two equal keys the last one counts.

    Raises ProtocolError when it is not valid UTF-8, not valid JSON or not an
    object.
    """
    text = text_of(payload)
    values: Dict[str, Any] = {}
    spans: Dict[str, Tuple[int, int]] = {}
    at = skip(text, 0)
    if text[at : at + 1] != "{":
        _, end = value_at(text, at)
        if skip(text, end) != len(text):
            raise ProtocolError(f"invalid JSON at character {end}")
        raise ProtocolError("the frame's JSON is not an object")
    at = skip(text, at + 1)
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            keys: List[str] = []
            at = key_at(text, at, keys)
            value, end = value_at(text, at)
            values[keys[0]] = value
            spans[keys[0]] = (at, end)
            at = skip(text, end)
            mark = text[at : at + 1]
            at += 1
            if mark == "}":
                break
            if mark != ",":
                raise ProtocolError(f"no comma at character {at - 1}")
            at = skip(text, at)
    at = skip(text, at)
    if at != len(text):
        raise ProtocolError(f"bytes after the object at character {at}")
    return Message(values, text, spans)


OK = "ok"
ERROR = "error"
JOB = "job"
RESULT = "result"
PROGRESS = "progress"
CANCEL = "cancel"
PING_KIND = "ping"


def read(payload: bytes) -> Message:
    """Read a frame of the broker and say what it is.

    kind stays None for a message that only later protocols know.  Raises
    ProtocolError for what is no message at all.
    """
    message = decode(payload)
    values = message.values
    if "error" in values:
        message.kind = ERROR
        message.string("error")
        message.string("reason")
        optional_id = True
    elif "action" in values:
        action = values["action"]
        if action not in (JOB, CANCEL, PING_KIND):
            return message
        message.kind = action
        if action == PING_KIND:
            return message
        if action == JOB:
            message.string("type")
            if "body" not in values:
                raise ProtocolError("job frame: body is missing")
        optional_id = False
    elif "ok" in values:
        message.kind = OK
        if values["ok"] is not True:
            raise ProtocolError(f"ok is {values['ok']!r} instead of true")
        optional_id = True
    elif "id" in values and ("body" in values or "progress" in values):
        message.kind = RESULT if "body" in values else PROGRESS
        optional_id = False
    else:
        return message
    if values.get("id") is not None or not optional_id:
        message.id = message.string("id")
    return message


def limit(message: Message, key: str) -> Optional[int]:
    """One of the limits in the reply to hello, None when it is not told."""
    limits = message.get("limits")
    value = limits.get(key) if isinstance(limits, dict) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"limit {key} is {value!r}")
    return value


def check_name(field: str, value: object) -> str:
    """Return an id or type; TypeError or ValueError when it cannot be one."""
    if not isinstance(value, str):
        raise TypeError(f"{field} {value!r}: not a str")
    if not value:
        raise ValueError(f"{field}: empty")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise ValueError(f"{field} {value!r}: holds a lone surrogate") from None
    if size > MAX_NAME:
        raise ValueError(
            f"{field} {value[:40] + '...'!r}: {size} bytes, at most {MAX_NAME}"
        )
    return value


def frame(payload: bytes) -> bytes:
    """A payload with its header."""
    return HEADER.pack(len(payload)) + payload


_encode_str = json.JSONEncoder(ensure_ascii=False).encode

# Numbers and flags of a submit, in the order in which they are written.
_SUBMIT_KEYS = (
    "priority",
    "delay_ms",
    "timeout_ms",
    "retries",
    "backoff_ms",
    "expires_ms",
    "detach",
    "ack",
    "progress",
)


def _message(action: str, fields: List[Tuple[str, object]]) -> bytes:
    parts = [f'{{"action":"{action}"']
    for key, value in fields:
        if value is None:
            continue
        if isinstance(value, str):
            text = _encode_str(value)
        elif value is True or value is False:
            text = "true" if value else "false"
        else:
            text = str(value)
        parts.append(f',"{key}":{text}')
    return "".join(parts).encode("utf-8")


def _close(head: bytes, body: Optional[bytes] = None) -> bytes:
    if body is None:
        return HEADER.pack(len(head) + 1) + head + b"}"
    size = len(head) + 8 + len(body) + 1
    return b"".join((HEADER.pack(size), head, b',"body":', body, b"}"))


def submit(
    id: str,
    type: Optional[str],
    body: bytes,
    options: Optional[Dict[str, object]] = None,
) -> bytes:
    """A submit frame.  Options hold wire keys; type None: the default one."""
    fields: List[Tuple[str, object]] = [("id", id), ("type", type)]
    if options:
        fields += [(key, options.get(key)) for key in _SUBMIT_KEYS]
    return _close(_message("submit", fields), body)


def cancel(id: str) -> bytes:
    """A cancel frame, which only submitters send."""
    return _close(_message("cancel", [("id", id)]))


def join(
    type: str, prefetch: Optional[int] = None, cancel: Optional[bool] = None
) -> bytes:
    """A join frame."""
    return _close(
        _message(
            "join", [("type", type), ("prefetch", prefetch), ("cancel", cancel)]
        )
    )


def respond(id: Optional[str], body: bytes) -> bytes:
    """A respond frame; id None on a socket that does not name its jobs."""
    return _close(_message("respond", [("id", id)]), body)


def fail(
    id: Optional[str],
    reason: Optional[str] = None,
    retry: Optional[bool] = None,
    delay_ms: Optional[int] = None,
) -> bytes:
    """A fail frame."""
    return _close(
        _message(
            "fail",
            [
                ("id", id),
                ("reason", reason),
                ("retry", retry),
                ("delay_ms", delay_ms),
            ],
        )
    )


def progress(id: Optional[str], body: bytes) -> bytes:
    """A worker's progress frame."""
    return _close(_message("progress", [("id", id)]), body)


def hello(
    token: Optional[str] = None,
    client: Optional[str] = None,
    heartbeat_ms: Optional[int] = None,
) -> bytes:
    """A hello frame, the first one of a connection or none."""
    return _close(
        _message(
            "hello",
            [
                ("token", token),
                ("client", client),
                ("heartbeat_ms", heartbeat_ms),
            ],
        )
    )


LEAVE = frame(b'{"action":"leave"}')
PING = frame(b'{"action":"ping"}')
PONG = frame(b'{"action":"pong"}')
