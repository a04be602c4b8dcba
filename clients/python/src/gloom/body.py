"""Bodies of jobs and answers: Python values, or bytes kept verbatim."""

from __future__ import annotations

import re
from typing import Any, Union

from ._json import MAX_DEPTH, dump, skip, text_of, value_at
from .errors import ProtocolError


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
            text = text_of(raw)
            _, end = value_at(text, skip(text, 0))
        except ProtocolError as err:
            raise ValueError(f"no JSON value: {err}") from None
        if skip(text, end) != len(text):
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
        return value_at(text, skip(text, 0))[0]

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


_LONE = re.compile("[\ud800-\udfff]")


def _escape(match: "re.Match[str]") -> str:
    return f"\\u{ord(match.group()):04x}"


def encode_body(value: object) -> bytes:
    """The JSON bytes of a body.

    Raises TypeError for what JSON cannot express, ValueError for NaN,
    infinities, circular references and too deep nesting.
    """
    if isinstance(value, RawJSON):
        return value.data
    text = dump(value)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can say
        data = _LONE.sub(_escape, text).encode("utf-8")
    check_depth(data)
    return data
