"""Bodies of jobs and answers: Python values, or bytes kept verbatim."""

import json
import math
import re
import sys
import threading
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Callable, Self, TypeVar

from .errors import ProtocolError

#: Deepest nesting of a frame; the frame's own object is the first level.
MAX_DEPTH = 1024

T = TypeVar("T")

# JSON's white space; str.isspace accepts more.
_SPACE = re.compile(r"[ \t\n\r]*")
_STEPS = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON value")


def _long_int(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


def _float(text: str) -> "float | Decimal | RawJSON":
    value = float(text)
    if abs(value) != math.inf:
        return value
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is too large even for Decimal
        return RawJSON._trusted(text.encode())


_decoder = json.JSONDecoder(parse_constant=_constant, parse_float=_float)
# Newer Pythons refuse to turn thousands of digits into an int.
_long_decoder = json.JSONDecoder(
    parse_constant=_constant, parse_float=_float, parse_int=_long_int
)
encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode

_limit = threading.Lock()


def _with_deep_stack(function: Callable[..., T], *args: Any) -> T:
    """Call json's C code with room for MAX_DEPTH levels: before Python 3.12 they
    count against the recursion limit of Python code."""
    with _limit:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + 2 * MAX_DEPTH)
        try:
            return function(*args)
        finally:
            sys.setrecursionlimit(before)


def skip(text: str, at: int) -> int:
    """The index of the first character that is not white space."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at index at, and the index where it ends."""
    try:
        try:
            return _decoder.raw_decode(text, at)
        except (RecursionError, ValueError) as err:
            if isinstance(err, json.JSONDecodeError):
                raise
            # It has more levels or digits than the fast decoder allows.
            check_depth(text[at:].encode("utf-8"), MAX_DEPTH)
            return _with_deep_stack(_long_decoder.raw_decode, text, at)
    except ValueError as err:
        raise ProtocolError(f"invalid JSON: {err}") from None


def decode(data: bytes) -> tuple[Any, str]:
    """Decode exactly one JSON value; raise ProtocolError for any other bytes.
    Returns the value and its text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as err:
        where = f"byte {err.start} of {len(data)}"
        raise ProtocolError(f"invalid UTF-8 at {where}") from None
    value, end = value_at(text, skip(text, 0))
    if skip(text, end) != len(text):
        raise ProtocolError(f"more than one JSON value, at character {end}")
    return value, text


@dataclass(init=False, repr=False, unsafe_hash=True, slots=True)
class RawJSON:
    """One JSON value as UTF-8 bytes, sent and received verbatim.

    Numbers beyond 64 bits, the order of keys, escapes: all stay as they are.
    The constructor checks that the bytes are one valid JSON value and raises
    ValueError otherwise.
    """

    data: bytes

    def __init__(self, data: bytes | bytearray | memoryview | str) -> None:
        self.data = data.encode("utf-8") if isinstance(data, str) else bytes(data)
        try:
            decode(self.data)
        except ProtocolError as err:
            raise ValueError(f"not a JSON value: {err}") from None
        check_depth(self.data)

    @classmethod
    def _trusted(cls, data: bytes) -> Self:
        self = cls.__new__(cls)
        self.data = data
        return self

    def value(self) -> Any:
        """The Python value.  Numbers too large for int or float become Decimal or, with
        an exponent that Decimal cannot hold, RawJSON."""
        return decode(self.data)[0]

    def __bytes__(self) -> bytes:
        return self.data

    def __repr__(self) -> str:
        shown = self.data if len(self.data) <= 60 else self.data[:57] + b"..."
        return f"RawJSON({shown!r})"


def check_depth(data: bytes, limit: int = MAX_DEPTH - 1) -> None:
    """ValueError when JSON is nested deeper than a frame, or a body in it, may be."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    depth = 0
    for token in _NESTING.finditer(data):
        depth += _STEPS.get(token.group(), 0)
        if depth > limit:
            raise ValueError(f"nested deeper than {limit} at byte {token.start()}")


def encode_body(value: object) -> bytes:
    """The JSON bytes of a body.

    Raises TypeError for what JSON cannot express, ValueError for NaN,
    infinities, circular references and too deep nesting.
    """
    if isinstance(value, RawJSON):
        return value.data
    try:
        try:
            text = encode(value)
        except RecursionError:
            text = _with_deep_stack(encode, value)
    except RecursionError:
        raise ValueError(f"body: nested deeper than {MAX_DEPTH - 1}") from None
    # A lone surrogate can only be escaped; Python escapes it as JSON does.
    data = text.encode("utf-8", "backslashreplace")
    check_depth(data)
    return data
