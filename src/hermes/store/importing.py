"""Sessions into the store, without loss: one per transaction, and doing it again adds nothing.

Parents and carried messages may come later in an import than what refers to them, so they are joined at the end.

Messages keep their ids where those are free and higher than any that the store held when the import began, so that
what is exported from an empty store that took an export in is that export again. A number that was ever another
message's here is not used again: somebody may still refer to it.

Without trust an import only adds: it takes over what `import_policy` calls data, joins the new sessions to each other
alone, and changes nothing that was in the store before, but sessions of such imports in which nothing was said since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes.store import blobs, derived, import_policy, meta
from hermes.store.carried import Run, length, ranges_here, runs
from hermes.store.content import from_json, uid_text
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
UNTOUCHED = """SELECT model_config, (SELECT count(*) FROM messages m WHERE m.session_id = sessions.id)
    FROM sessions WHERE id = ? AND trashed_at IS NULL"""
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

    A dry run reads and says what would happen. `trusted` takes over what steers behaviour, too.
    """

    def __init__(self, engine: Access, dry_run: bool = False, *, trusted: bool = False) -> None:
        self.engine = engine
        self.dry_run = dry_run
        self.trusted = trusted
        self.steering: Counter[str] = Counter()
        self.joinable: set[str] = set()
        """Without trust, the only sessions that get parents, children or carried messages."""
        self.unjoined: set[str] = set()
        self.in_trash: set[str] = set()
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
        given = self._read(session)
        spare = new_session_id()
        if self.dry_run:
            session_id, added, ids = self._look(given, spare)
        else:
            session_id, added, ids = self.engine.write(
                lambda writer: self._store(writer, given, spare), share=False
            )
        self.here[given.id] = session_id
        if added is not None:
            self.joinable.add(session_id)
        is_mine = self._may_be_parent(session_id)
        self.runs[given.id] = runs(zip(given.old_ids, ids, strict=True)) if is_mine else []
        if is_mine and (given.parent is not None or given.context or given.rewound):
            carried = (given.context, given.rewound)
            self.waiting.append(_Joint(session_id, given.parent, given.relation, *carried, added is not None))
        if added is None:
            self.skipped.append(given.id)
        else:
            self.added.append(session_id)
            self.messages += added
            self.steering += import_policy.count_steering(session)
            if session_id == spare:
                self.renamed[given.id] = spare
        return Taken(given.id, session_id, added)

    def _read(self, session: Mapping[str, Any]) -> Given:
        if self.trusted:
            return Given.of(session)
        given = Given.of(import_policy.restrict(session))
        # A start in the future became the time of the import, which is another one the next time.
        return given if given.started_at == session.get("started_at") else given._replace(start_known=False)

    def _look(self, given: Given, spare: str) -> tuple[str, int | None, Sequence[int]]:
        """What `_store` would answer; ids that messages would be given are not known."""
        nowhere = [0] * len(given.old_ids)
        if given.note() in self.would_be_here:
            return self.here[given.id], None, nowhere
        self.would_be_here.add(given.note())
        with self.engine.read(settled=True) as reader:
            place = self._place(reader, given)
            self._allow_joins(reader, place)
        if place.id is not None:
            return place.id, 0 if self._comes_back(place) else None, nowhere
        is_other = place.taken or given.id in self.here
        return spare if is_other else given.id, len(given.messages), nowhere

    def _store(self, writer: Writer, given: Given, spare: str) -> tuple[str, int | None, Sequence[int]]:
        """(id here, how many messages that added or None if it was here, ids of its messages here)."""
        place = self._place(writer, given)
        self._allow_joins(writer, place)
        if place.id is not None:
            return place.id, _bring_back(writer, place.id) if self._comes_back(place) else None, place.ids
        session_id = spare if place.taken else given.id
        ids = self._insert(writer, given, session_id)
        if place.taken:
            writer.run(meta.SET, given.note(), spare)
        return session_id, len(given.messages), ids

    def _insert(self, writer: Writer, given: Given, session_id: str) -> list[int]:
        title = given.title
        if title is not None and not self.trusted:
            title = import_policy.clear_title(writer, title, self.joinable)
        if title is not None:
            title = free_title(writer, title, given.owner, session_id)
        parent = None if given.parent is None else self.here.get(given.parent)
        if parent is not None and not self._may_be_parent(parent):
            parent = None
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
        is_joined = self._find_parent(reader, one) is not None or one.id in self.unjoined
        return one.new and one.parent is not None and not is_joined

    def _find_parent(self, reader: Reader, one: _Joint) -> str | None:
        """The parent that a session gets. Without trust nothing joins a family that was here before."""
        if one.parent is None:
            return None
        parent = self.here.get(one.parent, one.parent)
        if self._may_be_parent(parent):
            return parent if parent in self.joinable or reader.value(EXISTS, parent) else None
        if reader.value(EXISTS, parent):
            self.unjoined.add(one.id)
        return None

    def _allow_joins(self, reader: Reader, place: _Place) -> None:
        """What an earlier import added can be completed, while nothing was said in it since."""
        if self.trusted or place.id is None:
            return
        config, count = reader.row(UNTOUCHED, place.id) or (None, None)
        if from_json(config or "null", None) == import_policy.UNTRUSTED_CONFIG and count == len(place.ids):
            self.joinable.add(place.id)

    def _may_be_parent(self, session_id: str) -> bool:
        return self.trusted or session_id in self.joinable

    def _link(self, some: list[_Joint], writer: Writer) -> list[str]:
        alone: list[str] = []
        for one in some:
            parent = self._find_parent(writer, one)
            if parent is not None:
                writer.run(SET_PARENT, parent, one.relation, one.id)
            elif self._is_alone(writer, one):
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
        found = ranges_here(reader, self.runs, context, only_known=not self.trusted)
        return [message_id for first, last in found for message_id in range(first, last + 1)]

    def told(self) -> Imported:
        return Imported(
            tuple(self.added),
            tuple(self.skipped),
            self.renamed,
            tuple(self.detached),
            self.messages,
            tuple(dict.fromkeys(self.incomplete)),
            taken_over=dict(self.steering) if self.trusted else {},
            left_out={} if self.trusted else dict(self._left_out()),
        )

    def _left_out(self) -> Counter[str]:
        found = Counter(
            {import_policy.PARENT: len(self.unjoined), import_policy.FROM_TRASH: len(self.in_trash)}
        )
        return self.steering + found

    def _comes_back(self, place: _Place) -> bool:
        """Whether a session that is here comes back from the trash, into which a person put it."""
        if place.trashed_at is not None and place.id is not None and not self.trusted:
            self.in_trash.add(place.id)
        return place.trashed_at is not None and self.trusted

    def _place(self, reader: Reader, given: Given) -> _Place:
        """Where a given session is. Without trust it gets no id by which a person means another one."""
        place = _place(reader, given)
        if self.trusted or place.id is not None or place.taken:
            return place
        if not import_policy.is_misleading_id(reader, given.id):
            return place
        return _place_by_note(reader, given) or _Place(None, taken=True)


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
    return _place_by_note(reader, given) or _Place(None, taken=True)


def _place_by_note(reader: Reader, given: Given) -> _Place | None:
    """The session to which an earlier import gave another id."""
    other = reader.value(meta.GET, given.note())
    if other is None or not reader.value(EXISTS, other):
        return None
    known = _found_in_order(reader, other, given)
    return _Place(other, ids=[0] * len(given.old_ids) if known is None else known)


def _bring_back(writer: Writer, session_id: str) -> int:
    """How many messages it adds that a session comes back from the trash."""
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
        if (uid is not None and uid_text(uid) == uids[len(found)]) or likeness(*shape) == likes[len(found)]:
            found.append(message_id)
    return found if len(found) == len(likes) else None
