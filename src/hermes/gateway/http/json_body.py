"""Limits on the JSON of requests: how many values it holds, and how deep they are nested.

A small body can become many objects: 30 MB of `[],[],…` take 700 MB when they are parsed. So values are counted before
the body is parsed, and the depth is checked before anything walks through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST_VALUES = 400_000
DEEPEST = 32


class TooComplex(ValueError):
    """The body has more values than are taken, or they are nested too deep."""


def check_value_count(body: bytes | bytearray, most: int = MOST_VALUES) -> None:
    """Refuse a body that may hold too many values. What looks like one inside a text counts too."""
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
