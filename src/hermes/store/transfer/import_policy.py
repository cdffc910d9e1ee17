"""Import policy: which values an import accepts from any file, and which only from a trusted file.

A file can come from an unknown person. Some columns are data: messages, titles, times, counts. Others control
the behaviour of this installation: the system prompt, the directory, the model's address, the chat. From an
untrusted file, only the data of a session is imported, and the session belongs to the local owner. Columns
that are in neither list are left out too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hermes import clock
from hermes.session_kinds import IMPORTED_ROLES
from hermes.store.columns import MESSAGES, SESSIONS, list_message_names, list_session_names
from hermes.store.engine import Reader
from hermes.store.sessions.titles import MAX_TITLE_LENGTH

# An untrusted import uses `parent_session_id` and `relation` only between sessions that it adds.
SESSION_DATA = frozenset(list_session_names(lambda column: column.is_imported and not column.steers))
BESIDE_SESSION = frozenset(("messages", "context", "rewound_context", "tags", "model_calls"))
SESSION_STEERING = {column.name: column.steers for column in SESSIONS if column.steers}
"""Maps a column that controls behaviour to its name in the report."""
MESSAGE_DATA = frozenset(list_message_names(lambda column: not column.steers))
MESSAGE_STEERING = {column.name: column.steers for column in MESSAGES if column.steers}
SYSTEM_MESSAGE = "system message"
FUTURE_TIME = "time in the future"
PARENT = "parent"
FROM_TRASH = "session from the trash"
PLURALS = {
    FUTURE_TIME: "times in the future",
    "process": "processes",
    "directory": "directories",
    FROM_TRASH: "sessions from the trash",
}

UNFINISHED_HANDOFFS = ("pending", "running")

UNTRUSTED_CONFIG = {"imported": True}
"""The `model_config` of a session from an untrusted file. The model of such a session is only a record and is
not used again.

This value also marks the session as untrusted.
"""

LATEST_TIME = 2**63
"""The latest valid time. The import of a later time is refused."""

RESERVED_NAMES = frozenset(("latest",))
"""Names with a special meaning for `--resume`."""

LATER_IN_LINEAGE = """SELECT id FROM sessions WHERE lower(title) >= lower(?) AND lower(title) < lower(?)
    AND title IS NOT NULL"""
TITLED = "SELECT id FROM sessions WHERE lower(title) = lower(?) AND title IS NOT NULL"
HAS_TITLE = "SELECT 1 FROM sessions WHERE title = ? AND title IS NOT NULL LIMIT 1"
STARTS_SO = "SELECT 1 FROM sessions WHERE id > ? AND id < ? LIMIT 1"
HIGHEST_CHARACTER = "\U0010ffff"


def restrict(session: Any) -> Any:
    """Return an incoming session of an untrusted file with only those columns that are data. If `session` is
    not a mapping, return it unchanged; the import refuses it later."""
    if not isinstance(session, Mapping):
        return session
    now = clock.now()
    restricted = {name: value for name, value in session.items() if name in SESSION_DATA | BESIDE_SESSION}
    for name in ("started_at", "ended_at"):
        if _is_later(restricted.get(name), now):
            restricted[name] = now
    restricted["model_config"] = UNTRUSTED_CONFIG
    for name, limit in (("messages", _restrict_message), ("model_calls", _restrict_call)):
        if isinstance(restricted.get(name), list | tuple):
            restricted[name] = [
                limit(row, now) if isinstance(row, Mapping) else row for row in restricted[name]
            ]
    return restricted


def _restrict_message(message: Mapping[str, Any], now: float) -> dict[str, Any]:
    restricted = {name: value for name, value in message.items() if name in MESSAGE_DATA}
    if _is_later(restricted.get("timestamp"), now):
        restricted["timestamp"] = now
    if _is_instruction(restricted):
        restricted["role"] = IMPORTED_ROLES[restricted["role"].strip().lower()]
    return restricted


def _restrict_call(call: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {**call, "at": now} if _is_later(call.get("at"), now) else dict(call)


def count_steering(session: Mapping[str, Any]) -> Counter[str]:
    """Return how many values of an incoming session control the behaviour of this installation, by the name of
    the value. A trusted import stores these values, and an untrusted import leaves them out."""
    now = clock.now()
    found = Counter({name: 1 for column, name in SESSION_STEERING.items() if session.get(column)})
    del found["process"]  # every session has one; not worth reporting
    if session.get("handoff_state") in UNFINISHED_HANDOFFS:  # never imported
        del found["handoff"]
    times = [session.get("started_at"), session.get("ended_at")]
    for message in _list_rows(session, "messages"):
        found.update({name for column, name in MESSAGE_STEERING.items() if message.get(column)})
        found[SYSTEM_MESSAGE] += _is_instruction(message)
        times.append(message.get("timestamp"))
    times += [call.get("at") for call in _list_rows(session, "model_calls")]
    found[FUTURE_TIME] += sum(_is_later(time, now) for time in times)
    return +found


def _list_rows(session: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = session.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list | tuple) else []


def _is_instruction(message: Mapping[str, Any]) -> bool:
    role = message.get("role")
    return isinstance(role, str) and role.strip().lower() in IMPORTED_ROLES


def _is_later(time: Any, now: float) -> bool:
    return isinstance(time, int | float) and now < time < LATEST_TIME


def is_misleading_id(reader: Reader, session_id: str) -> bool:
    """Return whether `session_id` already refers to another session, because it is that session's title or a
    prefix of that session's id."""
    return bool(
        reader.value(HAS_TITLE, session_id)
        or reader.value(STARTS_SO, session_id, session_id + HIGHEST_CHARACTER)
    )


def clear_title(reader: Reader, title: str, added: set[str]) -> str:
    """Return a title for an untrusted session: `title`, or a changed form of it that begins with `imported`.
    The result is not a reserved name, and it does not belong to the title lineage of a session that was in the
    store before the import.

    A lookup of `title` also finds `title #2`, so both belong to one title lineage. `added` lists the sessions
    of the same import; the title may belong to their lineages.
    """
    number, chosen = 1, title
    while chosen.lower() in RESERVED_NAMES or _is_in_lineage(reader, chosen, added):
        plain = "imported " + re.sub(" #+", " ", title)
        suffix = "" if number == 1 else f" ({number})"
        chosen = plain[: MAX_TITLE_LENGTH - len(suffix)].rstrip() + suffix
        number += 1
    return chosen


def _is_in_lineage(reader: Reader, title: str, added: set[str]) -> bool:
    found = reader.rows(LATER_IN_LINEAGE, f"{title} #", f"{title} $")
    at = title.find(" #")
    while at >= 0:
        found += reader.rows(TITLED, title[:at])
        at = title.find(" #", at + 1)
    return any(row[0] not in added for row in found)
