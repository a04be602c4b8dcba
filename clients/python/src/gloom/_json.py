"""JSON read value by value, so that each value's bytes can be kept.

Python's own decoder and encoder do the work wherever they can.  What nests or
counts further than they go is done here, without recursion.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, List, Tuple, Union

from .errors import ProtocolError

#: Nesting a frame may have; the frame's own object is the first level.
MAX_DEPTH = 1024

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


def text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as err:
        raise ProtocolError(
            f"invalid UTF-8 at byte {err.start} of {len(data)}"
        ) from None


def skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def value_at(text: str, at: int) -> Tuple[Any, int]:
    """The value that begins at a character, and where it ends."""
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as err:
        raise ProtocolError(
            f"invalid JSON at character {err.pos}: {err.msg}"
        ) from None
    except (RecursionError, ValueError):
        # More levels or digits than the usual decoder takes.
        return slow_value_at(text, at)


def slow_value_at(text: str, at: int) -> Tuple[Any, int]:
    """As value_at, without recursion and for numbers of any length."""
    root: List[Any] = []
    within: List[Any] = [root]  # the containers around
    keys: List[str] = []  # of the objects among them, each awaiting a value
    while True:
        mark = text[at : at + 1]
        if mark in ("[", "{") and mark:
            if len(within) > MAX_DEPTH:
                raise ProtocolError(f"JSON nested deeper than {MAX_DEPTH}")
            value: Any = [] if mark == "[" else {}
            at = skip(text, at + 1)
            closed = text[at : at + 1] == ("]" if mark == "[" else "}")
            _put(within[-1], keys, value)
            if closed:
                at += 1
            else:
                within.append(value)
                if mark == "{":
                    at = key_at(text, at, keys)
                continue
        else:
            value, at = _scalar(text, at)
            _put(within[-1], keys, value)
        while within[-1] is not root:
            at = skip(text, at)
            mark, inner = text[at : at + 1], within[-1]
            at += 1
            if mark == ",":
                at = skip(text, at)
                if isinstance(inner, dict):
                    at = key_at(text, at, keys)
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


def key_at(text: str, at: int, keys: List[str]) -> int:
    """Read a key and its colon; where its value begins."""
    if text[at : at + 1] != '"':
        raise ProtocolError(f"no key at character {at}")
    key, at = _scalar(text, at)
    at = skip(text, at)
    if text[at : at + 1] != ":":
        raise ProtocolError(f"no colon at character {at}")
    keys.append(key)
    return skip(text, at + 1)


def _scalar(text: str, at: int) -> Tuple[Any, int]:
    try:
        return _long_decoder.raw_decode(text, at)
    except ValueError as err:
        raise ProtocolError(f"invalid JSON at character {at}: {err}") from None


def dump(value: object) -> str:
    """The text of a value; TypeError or ValueError when JSON has none."""
    try:
        return _encode(value)
    except RecursionError:
        return slow_dump(value)


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def slow_dump(value: object) -> str:
    """As dump, without recursion."""
    parts: List[str] = []
    # What is still to be written, last first: texts, and values with the
    # number of containers around them.
    todo: List[Tuple[str, Any, int]] = [("", value, 0)]
    while todo:
        text, value, depth = todo.pop()
        parts.append(text)
        if text:
            continue
        if isinstance(value, (list, tuple, dict)) and depth == MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}, or circular")
        if isinstance(value, (list, tuple)):
            parts.append("[")
            todo.append(("]", None, 0))
            for item in reversed(value):
                todo += [("", item, depth + 1), (",", None, 0)]
        elif isinstance(value, dict):
            parts.append("{")
            todo.append(("}", None, 0))
            for key in reversed(value):
                name = _encode({key: 0})[1:-2]  # whatever keys JSON takes
                todo += [("", value[key], depth + 1), (name, None, 0)]
                todo.append((",", None, 0))
        else:
            parts.append(_encode(value))
            continue
        if todo[-1][0] == ",":
            todo.pop()  # none before the first one
    return "".join(parts)
