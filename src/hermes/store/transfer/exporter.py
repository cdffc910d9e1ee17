"""Export of sessions, and the entry points of the import.

An export reads one session at a time, in short snapshots. It therefore needs little memory and does not delay
the checkpoint of the write-ahead log. Carried messages are exported as ranges of message ids, each with the
session that contains the messages. `importer` translates the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, LiteralString

from hermes.store.arguments import check_iterable
from hermes.store.content import format_uid
from hermes.store.engine import Access, Reader
from hermes.store.sessions.carried_context import RANGES, SET_ASIDE
from hermes.store.sessions.labels import TAGS_OF
from hermes.store.sessions.messages import confirm_empty, decode_row
from hermes.store.sessions.sessions import EXISTS, check_source
from hermes.store.transfer.importer import Import
from hermes.store.values import Imported

MESSAGES_AT_ONCE = 500

IDS_BY_ACTIVITY = """SELECT id FROM sessions WHERE trashed_at IS NULL AND (? IS NULL OR source = ?)
    ORDER BY last_active DESC NULLS LAST, started_at DESC, id DESC"""
SESSION = "SELECT * FROM sessions WHERE id = ? AND trashed_at IS NULL"
NEWEST = "SELECT max(id) FROM messages WHERE session_id = ?"
SOME_MESSAGES = "SELECT * FROM messages WHERE session_id = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?"
MODEL_CALLS = """SELECT at, model, provider, base_url, purpose, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status, cost_source,
    pricing_version FROM model_usage WHERE session_id = ? ORDER BY id"""
IN_RANGE = "SELECT session_id, id, uid FROM messages WHERE id BETWEEN ? AND ? ORDER BY id"


class Transfer:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def export(self, session_id: str, redact: bool = False) -> dict[str, Any] | None:
        """Export a session with all its messages (including rewound ones), its carried context and its model
        calls.

        The tags of a conversation are exported with its first session. Return None if the session does not
        exist. With `redact`, recognised secrets are masked; an import cannot restore them.
        """
        with self._engine.read(settled=True) as reader:
            session = reader.dict(SESSION, session_id)
            if session is None:
                return None
            if session["last_active"] is None:
                session["last_active"] = session["started_at"]
            beside = {
                "context": _read_carried(reader, RANGES, session_id),
                "rewound_context": _read_carried(reader, SET_ASIDE, session_id),
                "tags": [row[0] for row in reader.rows(TAGS_OF, session_id)],
                "model_calls": reader.dicts(MODEL_CALLS, session_id),
            }
            newest = reader.value(NEWEST, session_id) or 0
            page = _read_page(reader, session_id, 0, newest) or confirm_empty(reader, session_id)
        messages = list(page)
        while len(page) == MESSAGES_AT_ONCE:
            with self._engine.read() as reader:
                if not reader.value(EXISTS, session_id):
                    return None
                page = _read_page(reader, session_id, page[-1]["id"], newest)
            messages += page
        session["messages"] = messages
        exported = session | {name: value for name, value in beside.items() if value}
        if redact:
            from hermes.secrets import redact_value

            exported = redact_value(exported)
        return exported

    def export_all(self, source: str | None = None, redact: bool = False) -> list[dict[str, Any]]:
        """Export every session outside the trash, newest activity first, as a list in memory. With `redact`,
        secrets are masked."""
        return list(self.export_each(source, redact))

    def export_each(self, source: str | None = None, redact: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the sessions of `export_all` one at a time.

        The set of sessions is fixed when this is called, not at the first iteration step. A session that is
        deleted before it is reached is left out.
        """
        name = None if source is None else check_source(source)
        with self._engine.read(settled=True) as reader:
            ids = [row[0] for row in reader.rows(IDS_BY_ACTIVITY, name, name)]
        return self._export_ids(ids, redact)

    def _export_ids(self, ids: list[str], redact: bool) -> Iterator[dict[str, Any]]:
        for session_id in ids:
            session = self.export(session_id, redact)
            if session is not None:
                yield session

    def import_sessions(self, sessions: Iterable[Mapping[str, Any]], *, trusted: bool = False) -> Imported:
        """Import exported sessions. If a session is invalid, raise an error; the sessions before it stay
        imported."""
        with self.importing(trusted=trusted) as taking:
            for session in check_iterable("sessions", sessions):
                taking.take(session)
        return taking.make_result()

    def importing(self, dry_run: bool = False, *, trusted: bool = False) -> Import:
        """Return an import that accepts one session at a time and can continue after an invalid session. With
        `dry_run`, nothing is stored."""
        return Import(self._engine, dry_run, trusted=trusted)


def _read_page(reader: Reader, session_id: str, after: int, newest: int) -> list[dict[str, Any]]:
    rows = reader.dicts(SOME_MESSAGES, session_id, after, newest, MESSAGES_AT_ONCE)
    return [decode_row(reader, row) for row in rows]


def _read_carried(reader: Reader, sql: LiteralString, session_id: str) -> list[dict[str, Any]]:
    """Return the ranges of messages that a session carries, in the format of an export. `sql` selects the
    ranges. A range that contains messages of several sessions is split, so that each exported range names one
    session."""
    entries: list[dict[str, Any]] = []
    for first, last in reader.rows(sql, session_id):
        for owner, group in groupby(reader.rows(IN_RANGE, first, last), key=lambda row: row[0]):
            rows = list(group)
            entry: dict[str, Any] = {"session_id": owner, "count": len(rows)}
            for end, (_owner, message_id, uid) in (("first", rows[0]), ("last", rows[-1])):
                entry |= {end: message_id, f"{end}_uid": format_uid(uid)}
            entries.append(entry)
    return entries
