"""Limits on the JSON body of a request: the number of values and the nesting depth.

A small body can become many objects: 30 MB of `[],[],…` take 700 MB when parsed. Therefore values are counted
before parsing, and the depth is checked before any code walks through the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST_VALUES = 400_000
DEEPEST = 32


class TooComplex(ValueError):
    """The body has too many values, or they are nested too deeply."""


def check_value_count(body: bytes | bytearray, most: int = MOST_VALUES) -> None:
    """Raise `TooComplex` if `body` may contain more than `most` values. The count is an upper bound, because
    separators inside strings are counted too."""
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > most:
        raise TooComplex(f"the body has more than {most:,} values")


def check_depth(value: Any, deepest: int = DEEPEST) -> None:
    level = [value]
    for _ in range(deepest + 1):
        level = [inner for container in level for inner in _containers(container)]
        if not level:
            return
    raise TooComplex(f"the body is nested more than {deepest} levels deep")


def _containers(value: Any) -> Iterator[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (container for container in inside if isinstance(container, dict | list))
