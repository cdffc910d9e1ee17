"""All messages that a filter allows, newest first by their time, as a lazy iterator of ids.

Ids are in the order of insertion, which differs from the order of time after an import. No SQL index covers
the time of all messages. Instead, sessions are read by their last activity, and the messages of each session
by their time. A session is begun only when its last activity is at least as new as every unread message of
the sessions begun before.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any

from hermes.store.sqlite.connection import SqliteReader
from hermes.store.sqlite.search.row_filters import ALLOWED, OF_SESSION

SESSIONS = " ".join(
    (
        "SELECT s.id, s.last_active, coalesce(s.root_id, s.id) FROM sessions s WHERE ?1 IS NULL",
        OF_SESSION,
        "ORDER BY s.last_active DESC, s.started_at DESC, s.id DESC",
    )
)
MESSAGES = " ".join(
    (
        "SELECT m.id, m.timestamp FROM messages m CROSS JOIN sessions s ON s.id = m.session_id",
        "WHERE m.session_id = ?1",
        ALLOWED,
        "ORDER BY m.timestamp DESC, m.id DESC",
    )
)


def walk_newest(
    reader: SqliteReader, allowed: tuple[Any, ...], enough: Container[str] | None
) -> Iterator[int]:
    """Yield the ids of the messages that the filter allows, newest first. `allowed` are the values of the filter.

    Messages of the conversations in `enough` are skipped. The caller can add conversations to it during the
    iteration.
    """
    sessions = reader.each(SESSIONS, None, *allowed)
    waiting = next(sessions, None)
    opened: list[
        tuple[float, int, str, Iterator[Any]]
    ] = []  # a heap: the newest message of each open session
    while opened or waiting is not None:
        while waiting is not None and (not opened or _to_key(waiting[1]) <= opened[0][0]):
            session_id, _, root = waiting
            if enough is None or root not in enough:
                _push_next(opened, root, reader.each(MESSAGES, session_id, *allowed))
            waiting = next(sessions, None)
        if not opened:
            continue
        _, negative_id, root, messages = heappop(opened)
        if enough is not None and root in enough:
            continue
        yield -negative_id
        if enough is None or root not in enough:
            _push_next(opened, root, messages)


def _push_next(
    opened: list[tuple[float, int, str, Iterator[Any]]], root: str, messages: Iterator[Any]
) -> None:
    following = next(messages, None)
    if following is not None:
        heappush(opened, (_to_key(following[1]), -following[0], root, messages))


def _to_key(time: object) -> float:
    """Return a key with which times are sorted in descending order, so that the newest comes first.

    A value that is not a number, which another program may have stored, comes last.
    """
    return -time if isinstance(time, int | float) else inf
