"""Sessions into the store, without loss: one per transaction, and doing it again adds nothing.

Parents and carried messages may come later in an import than what refers to them, so they are joined at the end.

Messages keep their ids where those are free and higher than any that the store held when the import began, so that
what is exported from an empty store that took an export in is that export again. A number that was ever another
message's here is not used again: somebody may still refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes.store import blobs, derived, meta
from hermes.store.carried import Run, length, ranges_here, runs
from hermes.store.context import LIVE, LOWEST, carry, set_aside
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
MESSAGE = """session_id, role, content, content_kind, tool_call_id, tool_calls, tool_name,
        timestamp, finish_reason, reasoning, reasoning_content, platform_message_id, reasoning_details,
        codex_reasoning_items, codex_message_items, token_count, rewound_at, thinned_bytes, active, uid)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"""
INSERT_MESSAGE = " ".join(("INSERT INTO messages (", MESSAGE, ")"))
INSERT_WITH_ID = " ".join(("INSERT INTO messages (id,", MESSAGE, ", ?)"))
HIGHEST = "SELECT coalesce(max(id), 0) FROM messages"
IS_TAKEN = "SELECT 1 FROM messages WHERE id = ?"
# The index goes on above the highest row it has seen; what comes in below is told to it.
NOTE_BELOW = "INSERT INTO changed_messages (message_id) VALUES (?) ON CONFLICT DO NOTHING"
SET_PARENT = (
    "UPDATE sessions SET parent_session_id = ?, relation = ? WHERE id = ? AND parent_session_id IS NULL"
)
SAME_OWNER = """SELECT 1 FROM sessions s, messages m JOIN sessions o ON o.id = m.session_id
    WHERE s.id = ? AND m.id = ? AND o.owner = s.owner"""

HIGHEST_KEPT = 2**40
"""A file may name any number; one near the largest would leave no room for the messages to come."""


class _Joint(NamedTuple):
    """What of a stored session can be said only when all are there: its parent, and what it carries."""

    id: str
    parent: str | None
    relation: str | None
    context: list[Mapping[str, Any]]
    rewound: list[Mapping[str, Any]]
    new: bool


class _Place(NamedTuple):
    """Where a given session is in the store."""

    id: str | None
    """Its id here, if it is here already."""
    taken: bool = False
    """Whether its own id belongs to a different session."""
    ids: Sequence[int] = ()
    """Where its messages are, if it is here."""
    trashed_at: float | None = None


class Taken(NamedTuple):
    """What became of one session of an import."""

    given: str
    here: str
    """Its id in this store; another one if `given` belonged to a different session."""
    messages: int | None
    """How many it added; None if the session was here already, and 0 if it came back from the trash."""


class Import:
    """One import on its way. Leaving it as a context joins what was taken, also when it is broken off.

    A dry run reads and says what would happen.
    """

    def __init__(self, engine: Access, dry_run: bool = False) -> None:
        self.engine = engine
        self.dry_run = dry_run
        self.added: list[str] = []
        self.skipped: list[str] = []
        self.renamed: dict[str, str] = {}
        self.detached: list[str] = []
        self.incomplete: list[str] = []
        self.messages = 0
        # The id here of every session that was given, and where its messages are.
        self.here: dict[str, str] = {}
        self.runs: dict[str, list[Run]] = {}
        self.waiting: list[_Joint] = []
        self.would_be_here: set[str] = set()
        with engine.read(settled=True) as reader:
            self.floor: int = reader.value(HIGHEST)

    def __enter__(self) -> Import:
        return self

    def __exit__(self, *_: object) -> None:
        self.link()

    def take(self, session: Mapping[str, Any]) -> Taken:
        """Take one session in, whole or, with a clear error, not at all; more may be taken after that."""
        given = Given.of(session)
        spare = new_session_id()
        if self.dry_run:
            session_id, added, ids = self._look(given, spare)
        else:
            session_id, added, ids = self.engine.write(
                lambda writer: self._store(writer, given, spare), share=False
            )
        self.here[given.id] = session_id
        self.runs[given.id] = runs(zip(given.old_ids, ids, strict=True))
        if given.parent is not None or given.context or given.rewound:
            carried = (given.context, given.rewound)
            self.waiting.append(_Joint(session_id, given.parent, given.relation, *carried, added is not None))
        if added is None:
            self.skipped.append(given.id)
        else:
            self.added.append(session_id)
            self.messages += added
            if session_id == spare:
                self.renamed[given.id] = spare
        return Taken(given.id, session_id, added)

    def _look(self, given: Given, spare: str) -> tuple[str, int | None, Sequence[int]]:
        """What `_store` would answer; ids that messages would be given are not known."""
        nowhere = [0] * len(given.old_ids)
        if given.note() in self.would_be_here:
            return self.here[given.id], None, nowhere
        self.would_be_here.add(given.note())
        with self.engine.read(settled=True) as reader:
            place = _place(reader, given)
        if place.id is not None:
            return place.id, None if place.trashed_at is None else 0, nowhere
        is_other = place.taken or given.id in self.here
        return spare if is_other else given.id, len(given.messages), nowhere

    def _store(self, writer: Writer, given: Given, spare: str) -> tuple[str, int | None, Sequence[int]]:
        """(id here, how many messages that added or None if it was here, ids of its messages here)."""
        place = _place(writer, given)
        if place.id is not None:
            return place.id, _out_of_trash(writer, place.id, place.trashed_at), place.ids
        session_id = spare if place.taken else given.id
        ids = self._insert(writer, given, session_id)
        if place.taken:
            writer.run(meta.SET, given.note(), spare)
        return session_id, len(given.messages), ids

    def _insert(self, writer: Writer, given: Given, session_id: str) -> list[int]:
        title = None if given.title is None else free_title(writer, given.title, given.owner, session_id)
        parent = None if given.parent is None else self.here.get(given.parent)
        family = (parent, given.relation if parent is not None else None)
        start = (session_id, given.source, given.started_at, title, given.owner)
        writer.run(INSERT_SESSION, *start, *family, *given.counts, *given.rest)
        ids = self._insert_messages(writer, given, session_id)
        for message_id, attachments in zip(ids, given.attachments, strict=True):
            blobs.attach(writer, message_id, attachments)
        for tag in given.tags:
            writer.run(ADD_TAG, session_id, tag)
        for call in given.model_calls:
            writer.insert(RECORD_CALL, session_id, *call)
        writer.run(derived.NOTE, session_id)
        derived.refresh(writer)
        return ids

    def _insert_messages(self, writer: Writer, given: Given, session_id: str) -> list[int]:
        if not self._keeps_ids(writer, given.old_ids):
            return [writer.insert(INSERT_MESSAGE, session_id, *row) for row in given.messages]
        highest = writer.value(HIGHEST)
        for message_id, row in zip(given.old_ids, given.messages, strict=True):
            writer.insert(INSERT_WITH_ID, message_id, session_id, *row)
            if message_id <= highest:
                writer.run(NOTE_BELOW, message_id)
        return given.old_ids

    def _keeps_ids(self, reader: Reader, ids: Sequence[Any]) -> bool:
        """Whether the messages can have the ids that they have in the file, in the order of the file."""
        before = self.floor
        for message_id in ids:
            if type(message_id) is not int or not before < message_id < HIGHEST_KEPT:
                return False
            before = message_id
        return not any(reader.value(IS_TAKEN, message_id) for message_id in ids)

    def link(self) -> None:
        """Join children to parents and restore what is carried; parents were mostly given after their children."""
        self.waiting.reverse()
        for at in range(0, len(self.waiting), LINKS_AT_ONCE):
            some = self.waiting[at : at + LINKS_AT_ONCE]
            if self.dry_run:
                with self.engine.read() as reader:
                    self.detached += [one.id for one in some if self._is_alone(reader, one)]
            else:
                self.detached += self.engine.write(partial(self._link, some), share=False)
        self.waiting = []

    def _is_alone(self, reader: Reader, one: _Joint) -> bool:
        """Whether a new session has a parent that is neither here nor was given."""
        given = one.parent is None or one.parent in self.here
        return one.new and not given and not reader.value(EXISTS, one.parent)

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
        ids = self._ids(writer, one.context)
        same = [message_id for message_id in ids if writer.value(SAME_OWNER, one.id, message_id)]
        if len(same) > len(writer.rows(LIVE, one.id)):
            carry(writer, one.id, same)
        if len(same) < sum(length(told) for told in one.context):
            self.incomplete.append(one.id)
        if one.rewound and writer.value(LOWEST, one.id) in (None, 0):
            set_aside(writer, one.id, self._ids(writer, one.rewound))

    def _ids(self, reader: Reader, context: list[Mapping[str, Any]]) -> list[int]:
        found = ranges_here(reader, self.runs, context)
        return [message_id for first, last in found for message_id in range(first, last + 1)]

    def told(self) -> Imported:
        return Imported(
            tuple(self.added),
            tuple(self.skipped),
            self.renamed,
            tuple(self.detached),
            self.messages,
            tuple(dict.fromkeys(self.incomplete)),
        )


def _place(reader: Reader, given: Given) -> _Place:
    """A session that went on since, or got another id the last time, is recognised by what was said in it."""
    row = reader.row(PLACE, given.id)
    if row is None:
        return _Place(None)
    source, started_at, trashed_at = row
    if source == given.source and (started_at == given.started_at or not given.start_known):
        known = _found_in_order(reader, given.id, given)
        if known is not None:
            return _Place(given.id, ids=known, trashed_at=trashed_at)
    other = reader.value(meta.GET, given.note())
    if other is not None and reader.value(EXISTS, other):
        known = _found_in_order(reader, other, given)
        return _Place(other, ids=[0] * len(given.old_ids) if known is None else known)
    return _Place(None, taken=True)


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
