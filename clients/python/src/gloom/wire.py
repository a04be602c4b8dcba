"""Frames and messages of the Gloom protocol, without sockets.

A frame is a 32-bit length in network byte order, then that many bytes of
JSON holding one object.  This module cuts frames out of a byte stream, reads
the object's top level while keeping every value's bytes, and encodes what
submitters and workers send.  It does not know who may say what when.
"""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from typing import Any, Dict, List, Optional, Tuple, Union

from .errors import FrameTooLarge, ProtocolError

HEADER = struct.Struct(">I")
HEADER_LEN = HEADER.size

#: Payload bytes a peer accepts unless it says otherwise (16 MiB).
MAX_FRAME = 16 * 1024 * 1024
#: UTF-8 bytes an id or a type may have.
MAX_NAME = 1024
#: Nesting a frame may have; the frame's own object is the first level.
MAX_DEPTH = 1024
#: Largest duration on the wire: a year, in milliseconds.
MAX_MS = 31_536_000_000
#: Largest backoff: a day, in milliseconds.
MAX_BACKOFF_MS = 86_400_000
#: Most retries of a job.
MAX_RETRIES = 1000


class RawJSON:
    """One JSON value as UTF-8 bytes, sent and received verbatim.

    Numbers beyond 64 bits, the order of keys, escapes: all stay as they are.
    The constructor checks that the bytes are one valid JSON value and raises
    ValueError otherwise.
    """

    __slots__ = ("data",)

    data: bytes

    def __init__(self, data: Union[bytes, bytearray, memoryview, str]) -> None:
        raw = data.encode("utf-8") if isinstance(data, str) else bytes(data)
        try:
            text = _text(raw)
            _, end = _value(text, _skip(text, 0))
        except ProtocolError as err:
            raise ValueError(f"no JSON value: {err}") from None
        if _skip(text, end) != len(text):
            raise ValueError(f"more than one JSON value, at character {end}")
        check_depth(raw)
        self.data = raw

    @classmethod
    def _trusted(cls, data: bytes) -> "RawJSON":
        self = cls.__new__(cls)
        self.data = data
        return self

    def value(self) -> Any:
        """The Python value.  Integers too long for int become Decimal."""
        text = self.data.decode("utf-8")
        return _value(text, _skip(text, 0))[0]

    def __bytes__(self) -> bytes:
        return self.data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawJSON) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        shown = self.data if len(self.data) <= 60 else self.data[:57] + b"..."
        return f"RawJSON({shown!r})"

    def __getstate__(self) -> bytes:
        return self.data

    def __setstate__(self, data: bytes) -> None:
        self.data = data


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


# What JSON takes for space, which is less than what str.isspace takes.
_SPACE = re.compile(r"[ \t\n\r]*")


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON value")


def _long_int(text: str) -> Union[int, Decimal]:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


_decoder = json.JSONDecoder(parse_constant=_constant)
# Newer Pythons refuse to turn thousands of digits into an int.
_long_decoder = json.JSONDecoder(
    parse_constant=_constant, parse_int=_long_int
)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as err:
        raise ProtocolError(
            f"invalid UTF-8 at byte {err.start} of {len(data)}"
        ) from None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int) -> Tuple[Any, int]:
    """The value that begins at a character, and where it ends."""
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as err:
        raise ProtocolError(
            f"invalid JSON at character {err.pos}: {err.msg}"
        ) from None
    except (RecursionError, ValueError):
        # More levels or digits than the usual decoder takes.
        return _slow_value(text, at)


def _slow_value(text: str, at: int) -> Tuple[Any, int]:
    """As _value, without recursion and for numbers of any length."""
    root: List[Any] = []
    within: List[Any] = [root]  # the containers around
    keys: List[str] = []  # of the objects among them, each awaiting a value
    while True:
        mark = text[at : at + 1]
        if mark in ("[", "{") and mark:
            if len(within) > MAX_DEPTH:
                raise ProtocolError(f"JSON nested deeper than {MAX_DEPTH}")
            value: Any = [] if mark == "[" else {}
            at = _skip(text, at + 1)
            closed = text[at : at + 1] == ("]" if mark == "[" else "}")
            _put(within[-1], keys, value)
            if closed:
                at += 1
            else:
                within.append(value)
                if mark == "{":
                    at = _key(text, at, keys)
                continue
        else:
            value, at = _scalar(text, at)
            _put(within[-1], keys, value)
        while within[-1] is not root:
            at = _skip(text, at)
            mark, inner = text[at : at + 1], within[-1]
            at += 1
            if mark == ",":
                at = _skip(text, at)
                if isinstance(inner, dict):
                    at = _key(text, at, keys)
                break
            if mark != ("]" if isinstance(inner, list) else "}"):
                raise ProtocolError(f"invalid JSON at character {at - 1}")
            within.pop()
        else:
            return root[0], at


def _put(container: Any, keys: List[str], value: Any) -> None:
    if isinstance(container, list):
        container.append(value)
    else:
        container[keys.pop()] = value


def _key(text: str, at: int, keys: List[str]) -> int:
    """Read a key and its colon; where its value begins."""
    if text[at : at + 1] != '"':
        raise ProtocolError(f"no key at character {at}")
    key, at = _scalar(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise ProtocolError(f"no colon at character {at}")
    keys.append(key)
    return _skip(text, at + 1)


def _scalar(text: str, at: int) -> Tuple[Any, int]:
    try:
        return _long_decoder.raw_decode(text, at)
    except ValueError as err:
        raise ProtocolError(f"invalid JSON at character {at}: {err}") from None


def decode(payload: bytes) -> Message:
    """Read one payload.  Of two equal keys the last one counts.

    Raises ProtocolError when it is not valid UTF-8, not valid JSON or not an
    object.
    """
    text = _text(payload)
    values: Dict[str, Any] = {}
    spans: Dict[str, Tuple[int, int]] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        _, end = _value(text, at)
        if _skip(text, end) != len(text):
            raise ProtocolError(f"invalid JSON at character {end}")
        raise ProtocolError("the frame's JSON is not an object")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            keys: List[str] = []
            at = _key(text, at, keys)
            value, end = _value(text, at)
            values[keys[0]] = value
            spans[keys[0]] = (at, end)
            at = _skip(text, end)
            mark = text[at : at + 1]
            at += 1
            if mark == "}":
                break
            if mark != ",":
                raise ProtocolError(f"no comma at character {at - 1}")
            at = _skip(text, at)
    at = _skip(text, at)
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


_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def check_depth(data: bytes) -> None:
    """ValueError when a body is nested deeper than a frame may hold."""
    limit = MAX_DEPTH - 1
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    depth = 0
    for token in _NESTING.finditer(data):
        mark = data[token.start()]
        if mark in b"[{":
            depth += 1
            if depth > limit:
                raise ValueError(
                    f"body: nested deeper than {limit} at byte {token.start()}"
                )
        elif mark in b"]}":
            depth -= 1


def encode_body(value: object) -> bytes:
    """The JSON bytes of a body.

    Raises TypeError for what JSON cannot express, ValueError for NaN,
    infinities, circular references and too deep nesting.
    """
    if isinstance(value, RawJSON):
        return value.data
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except RecursionError:
        raise ValueError("body: nested too deep for json.dumps") from None
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can say
        data = json.dumps(
            value, allow_nan=False, separators=(",", ":")
        ).encode("ascii")
    check_depth(data)
    return data


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
