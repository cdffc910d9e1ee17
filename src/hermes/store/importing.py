"""Sessions into the store, without loss: one per transaction, and doing it again adds nothing.

Parents and carried messages may come later in an import than what refers to them, so they are joined at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from hermes.store import blobs, derived, meta
from hermes.store.context import LIVE, LOWEST, carry, ranges, set_aside
from hermes.store.engine import Access, Reader, Writer
from hermes.store.incoming import Given, likeness
from hermes.store.keeping import ADD_TAG
from hermes.store.sessions import EXISTS, new_session_id
from hermes.store.titles import free_title
from hermes.store.usage import INSERT as RECORD_CALL
from hermes.store.values import Imported

LINKS_AT_ONCE = 100

PLACE = "SELECT source, started_at, trashed_at FROM sessions WHERE id = ?"
LIKE_GIVEN = """SELECT id, uid, role, content, content_kind, tool_call_id, tool_calls, tool_name FROM messages
    WHERE session_id = ? ORDER BY id"""
INSERT_SESSION = """INSERT INTO sessions (id, source, started_at, title, owner, parent_session_id, relation,
        message_count, tool_call_count,
        user_id, model, system_prompt, end_reason, billing_provider, billing_base_url, billing_mode, cost_status,
        cost_source, pricing_version, handoff_state, handoff_platform, handoff_error, title_by, session_key, chat_id,
        chat_type, thread_id, display_name, workspace, cwd, git_branch,
        model_config, origin_json, process,
        ended_at, estimated_cost_usd, actual_cost_usd, pinned_at,
        input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, api_call_count, archived,
        rewind_count)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_MESSAGE = """INSERT INTO messages (session_id, role, content, content_kind, tool_call_id, tool_calls, tool_name,
        timestamp, finish_reason, reasoning, reasoning_content, platform_message_id, reasoning_details,
        codex_reasoning_items, codex_message_items, token_count, rewound_at, thinned_bytes, active, uid)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
SET_PARENT = (
    "UPDATE sessions SET parent_session_id = ?, relation = ? WHERE id = ? AND parent_session_id IS NULL"
)
IDS_BETWEEN = "SELECT id FROM messages WHERE session_id = ? AND id BETWEEN ? AND ? ORDER BY id"
SAME_OWNER = """SELECT 1 FROM sessions s, messages m JOIN sessions o ON o.id = m.session_id
    WHERE s.id = ? AND m.id = ? AND o.owner = s.owner"""
BY_UID = "SELECT id FROM messages WHERE session_id = ? AND uid = ?"
BY_ID = "SELECT id FROM messages WHERE session_id = ? AND id = ?"


class _Joint(NamedTuple):
    """What of a stored session can be said only when all are there: its parent, and what it carries."""

    id: str
    parent: str | None
    relation: str | None
    context: list[Mapping[str, Any]]
    rewound: list[Mapping[str, Any]]
    new: bool


class Import:
    """One import on its way."""

    def __init__(self, engine: Access) -> None:
        self.engine = engine
        self.added: list[str] = []
        self.skipped: list[str] = []
        self.renamed: dict[str, str] = {}
        self.detached: list[str] = []
        self.incomplete: list[str] = []
        self.messages = 0
        # The id here of every session that was given, and runs of its message ids: (first there, first here, how many).
        self.here: dict[str, str] = {}
        self.runs: dict[str, list[tuple[int, int, int]]] = {}
        self.waiting: list[_Joint] = []

    def take(self, given: Given) -> None:
        spare = new_session_id()
        session_id, added, ids = self.engine.write(
            lambda writer: self._store(writer, given, spare), share=False
        )
        self.here[given.id] = session_id
        self.runs[given.id] = _runs(zip(given.old_ids, ids, strict=True))
        if given.parent is not None or given.context or given.rewound:
            carried = (given.context, given.rewound)
            self.waiting.append(_Joint(session_id, given.parent, given.relation, *carried, added is not None))
        if added is None:
            self.skipped.append(given.id)
            return
        self.added.append(session_id)
        self.messages += added
        if session_id == spare:
            self.renamed[given.id] = spare

    def _store(self, writer: Writer, given: Given, spare: str) -> tuple[str, int | None, list[int]]:
        """(id here, how many messages that added or None if it was here, ids of its messages here)."""
        place = writer.row(PLACE, given.id)
        if place is None:
            return given.id, len(given.messages), self._insert(writer, given, given.id)
        source, started_at, trashed_at = place
        if source == given.source and (started_at == given.started_at or not given.start_known):
            known = _found_in_order(writer, given.id, given)
            if known is not None:
                return given.id, _out_of_trash(writer, given.id, trashed_at), known
        other = writer.value(meta.GET, given.note())
        if other is not None and writer.value(EXISTS, other):
            known = _found_in_order(writer, other, given)
            return other, None, known if known is not None else [0] * len(given.old_ids)
        ids = self._insert(writer, given, spare)
        writer.run(meta.SET, given.note(), spare)
        return spare, len(given.messages), ids

    def _insert(self, writer: Writer, given: Given, session_id: str) -> list[int]:
        title = None if given.title is None else free_title(writer, given.title, given.owner, session_id)
        parent = None if given.parent is None else self.here.get(given.parent)
        family = (parent, given.relation if parent is not None else None)
        start = (session_id, given.source, given.started_at, title, given.owner)
        writer.run(INSERT_SESSION, *start, *family, *given.counts, *given.rest)
        ids = [writer.insert(INSERT_MESSAGE, session_id, *row) for row in given.messages]
        for message_id, attachments in zip(ids, given.attachments, strict=True):
            blobs.attach(writer, message_id, attachments)
        for tag in given.tags:
            writer.run(ADD_TAG, session_id, tag)
        for call in given.model_calls:
            writer.insert(RECORD_CALL, session_id, *call)
        writer.run(derived.NOTE, session_id)
        derived.refresh(writer)
        return ids

    def link(self) -> None:
        """Join children to parents and restore what is carried; parents were mostly given after their children."""
        self.waiting.reverse()
        for at in range(0, len(self.waiting), LINKS_AT_ONCE):
            some = self.waiting[at : at + LINKS_AT_ONCE]
            self.detached += self.engine.write(partial(self._link, some), share=False)

    def _link(self, some: list[_Joint], writer: Writer) -> list[str]:
        alone: list[str] = []
        for one in some:
            if one.parent is not None:
                parent = self.here.get(one.parent, one.parent)
                if writer.value(EXISTS, parent):
                    writer.run(SET_PARENT, parent, one.relation, one.id)
                elif one.new:
                    alone.append(one.id)
            if one.context or one.rewound:
                self._carry(writer, one)
        derived.refresh(writer)
        return alone

    def _carry(self, writer: Writer, one: _Joint) -> None:
        """Restore what a session carries, and complete what an earlier import could not."""
        runs = self._ranges(writer, one.context)
        ids = [message_id for first, last in runs for message_id in range(first, last + 1)]
        same = [message_id for message_id in ids if writer.value(SAME_OWNER, one.id, message_id)]
        if len(same) > len(writer.rows(LIVE, one.id)):
            carry(writer, one.id, same)
        if len(same) < sum(_length(told) for told in one.context):
            self.incomplete.append(one.id)
        if one.rewound and writer.value(LOWEST, one.id) in (None, 0):
            aside = self._ranges(writer, one.rewound)
            set_aside(writer, one.id, [i for first, last in aside for i in range(first, last + 1)])

    def _ranges(self, reader: Reader, context: list[Mapping[str, Any]]) -> list[tuple[int, int]]:
        """Carried ranges in the ids of this store, joined where they touch."""
        joined: list[tuple[int, int]] = []
        for told in context:
            owner = str(told.get("session_id"))
            if owner in self.runs:
                parts = _overlap(self.runs[owner], told.get("first"), told.get("last"))
            else:
                start = _message_here(reader, owner, told.get("first"), told.get("first_uid"))
                end = _message_here(reader, owner, told.get("last"), told.get("last_uid"))
                # Others write between the rows of a session: only its own are carried.
                ids = () if start is None or end is None else reader.rows(IDS_BETWEEN, owner, start, end)
                parts = ranges(row[0] for row in ids)
            for first, last in parts:
                if joined and joined[-1][1] + 1 == first:
                    joined[-1] = (joined[-1][0], last)
                else:
                    joined.append((first, last))
        return joined

    def told(self) -> Imported:
        return Imported(
            tuple(self.added),
            tuple(self.skipped),
            self.renamed,
            tuple(self.detached),
            self.messages,
            tuple(dict.fromkeys(self.incomplete)),
        )


def _out_of_trash(writer: Writer, session_id: str, trashed_at: float | None) -> int | None:
    """How many messages it added that a session which was here came back; None if it had not been away."""
    if trashed_at is None:
        return None
    from hermes.store.trash import bring_back

    bring_back(writer, session_id)
    derived.refresh(writer)
    return 0


def _found_in_order(reader: Reader, session_id: str, given: Given) -> list[int] | None:
    """Where a stored session holds all the given messages, in their order; None if it does not."""
    likes, uids = given.likes, [row[-1] for row in given.messages]
    found: list[int] = []
    for message_id, uid, *shape in reader.rows(LIKE_GIVEN, session_id):
        if len(found) == len(likes):
            break
        # A message that was thinned since is still the same one.
        if (uid is not None and uid == uids[len(found)]) or likeness(*shape) == likes[len(found)]:
            found.append(message_id)
    return found if len(found) == len(likes) else None


def _runs(pairs: Iterable[tuple[Any, int]]) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    for there, here in pairs:
        if not isinstance(there, int) or not here:
            continue
        if runs and there - runs[-1][0] == here - runs[-1][1] == runs[-1][2]:
            runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((there, here, 1))
    return runs


def _overlap(runs: list[tuple[int, int, int]], first: Any, last: Any) -> list[tuple[int, int]]:
    if not isinstance(first, int) or not isinstance(last, int):
        return []
    cut = ((max(first, there), min(last, there + count - 1), here - there) for there, here, count in runs)
    return [(low + shift, high + shift) for low, high, shift in cut if low <= high]


def _length(told: Mapping[str, Any]) -> int:
    """How many messages a range of an export held, as far as it says so."""
    count = told.get("count")
    return count if isinstance(count, int) else 1


def _message_here(reader: Reader, session_id: str, message_id: Any, uid: Any) -> int | None:
    """A message of a session that is here but was not in the import."""
    if isinstance(uid, str):
        try:
            return reader.value(BY_UID, session_id, bytes.fromhex(uid))  # type: ignore[no-any-return]
        except ValueError:
            return None
    return reader.value(BY_ID, session_id, message_id) if isinstance(message_id, int) else None
