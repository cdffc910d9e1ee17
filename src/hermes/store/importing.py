"""Sessions into the store, without loss: one per transaction, and doing it again adds nothing.

A session of which a copy is here is merged with that copy; see `merge`.

Parents and carried messages may come later in an import than what refers to them, so they are joined at the end.

Messages of a new session keep their ids where those are free and higher than any that the store held when the import
began, so that what is exported from an empty store that took an export in is that export again. A number that was ever
another message's here is not used again: somebody may still refer to it.

Without trust an import only adds: it takes over what `import_policy` calls data, joins the new sessions to each other
alone, and changes nothing that was in the store before, but sessions of such imports in which nothing was said since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from hermes.store import blobs, derived, import_policy, leases, meta
from hermes.store.carried import Run, length, ranges_here, runs
from hermes.store.context import LIVE, LOWEST, SET_ASIDE, bring_back, carry, recount, set_aside
from hermes.store.copies import Merge, find_alias, find_merge
from hermes.store.engine import Access, Reader, Writer
from hermes.store.incoming import INSERT_MESSAGE, INSERT_SESSION, INSERT_WITH_ID, Given
from hermes.store.keeping import ADD_TAG
from hermes.store.merge import Retitled, apply_merge, note_labels
from hermes.store.merge_plan import BY_STORE, Transcript, plan_messages
from hermes.store.sessions import EXISTS, new_session_id
from hermes.store.titles import HELD_BY, OWNER, free_title, move_title
from hermes.store.titles import SET as SET_TITLE
from hermes.store.usage import INSERT as RECORD_CALL
from hermes.store.values import Imported

LINKS_AT_ONCE = 100

PLACE = "SELECT source, started_at FROM sessions WHERE id = ?"
HIGHEST = "SELECT coalesce(max(id), 0) FROM messages"
IS_TRASHED = "SELECT trashed_at IS NOT NULL FROM sessions WHERE id = ?"
IS_TAKEN = "SELECT 1 FROM messages WHERE id = ?"
# The index goes on above the highest row it has seen; what comes in below is told to it.
NOTE_BELOW = "INSERT INTO changed_messages (message_id) VALUES (?) ON CONFLICT DO NOTHING"
SET_PARENT = (
    "UPDATE sessions SET parent_session_id = ?, relation = ? WHERE id = ? AND parent_session_id IS NULL"
)
OTHER_CONTINUATIONS = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression'
    AND trashed_at IS NULL AND id <> ?"""
HOW_ENDED = "SELECT end_reason FROM sessions WHERE id = ?"
HAS_PARENT = "SELECT parent_session_id IS NOT NULL FROM sessions WHERE id = ?"
SAME_OWNER = """SELECT 1 FROM sessions s, messages m JOIN sessions o ON o.id = m.session_id
    WHERE s.id = ? AND m.id = ? AND o.owner = s.owner"""

HIGHEST_KEPT = 2**40
"""A file may name any number; one near the largest would leave no room for the messages to come."""


class _Joint(NamedTuple):
    """What of a stored session can be said only when all are there: its parent, and what it carries."""

    id: str
    given: str
    parent: str | None
    relation: str | None
    context: list[Mapping[str, Any]]
    rewound: list[Mapping[str, Any]]
    new: bool
    newer: bool
    """Whether the given copy is newer than the one that is here."""


class _Place(NamedTuple):
    """Where a given session is in the store."""

    merge: Merge | None = None
    """How it is merged with the copy that is here, if there is one."""
    taken: bool = False
    """Whether its own id belongs to a different session."""


class _Outcome(NamedTuple):
    """What was done with a given session, or what would be in a dry run."""

    here: str
    kind: Literal["new", "restored", "grown", "branched", "unchanged", "in use"]
    added: int
    """How many messages."""
    ids: Sequence[int]
    """The id here of each of its messages; 0 if not known."""
    merge: Merge | None = None
    is_changed: bool = False
    """Whether anything but messages changed in a session that was here."""
    restored: Sequence[str] = ()
    """The sessions that came back from the trash."""


class Taken(NamedTuple):
    """What became of one session of an import."""

    given: str
    here: str
    """Its id in this store; another one if `given` belonged to a different session."""
    messages: int | None
    """How many it added; None if all of it was here already, and 0 if it came back from the trash."""


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
        self.new: set[str] = set()
        """The sessions that this import made."""
        self.restored: list[str] = []
        self.skipped: list[str] = []
        self.grown: Counter[str] = Counter()
        self.branched: dict[str, str] = {}
        self.newer_here: dict[str, int] = {}
        self.updated: list[str] = []
        self.in_use: list[str] = []
        self.renamed: dict[str, str] = {}
        self.detached: list[str] = []
        self.incomplete: list[str] = []
        self.count = 0
        """How many sessions were given."""
        self.messages = 0
        # The id here of every session that was given, and where its messages are.
        self.here: dict[str, str] = {}
        self.runs: dict[str, list[Run]] = {}
        self.moved: dict[str, int] = {}
        """Messages that a session here got from one that was deleted, by uid: they are not stored a second time."""
        self.waiting: list[_Joint] = []
        self.retitled: dict[str, Retitled] = {}
        """Sessions that could not have their title because another session held it."""
        self.would_be_here: dict[str, Transcript] = {}
        """In a dry run, the messages of the sessions that would be new."""
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
            outcome = self._look(given, spare)
        else:
            outcome = self.engine.write(lambda writer: self._store(writer, given, spare), share=False)
        self.here[given.id] = outcome.here
        if outcome.kind in ("new", "restored", "branched"):
            self.joinable.add(outcome.here)
        if outcome.kind in ("new", "branched"):
            self.new.add(outcome.here)
        is_mine = self._may_be_parent(outcome.here)
        self.runs[given.id] = runs(zip(given.old_ids, outcome.ids, strict=True)) if is_mine else []
        is_itself = outcome.merge is None or not (outcome.merge.is_branched or outcome.merge.is_alias)
        if is_mine and is_itself and (given.parent is not None or given.context or given.rewound):
            is_new = outcome.kind in ("new", "restored")
            carried = (given.context, given.rewound)
            is_newer = outcome.merge is not None and outcome.merge.newer_side == "incoming"
            self.waiting.append(
                _Joint(outcome.here, given.id, given.parent, given.relation, *carried, is_new, is_newer)
            )
        if outcome.merge is not None and is_itself:
            self.moved |= outcome.merge.find_leading()
        self._count(session, given, outcome)
        if outcome.kind == "new" and outcome.here == spare:
            self.renamed[given.id] = spare
        is_here = outcome.kind in ("unchanged", "in use")
        return Taken(given.id, outcome.here, None if is_here else outcome.added)

    def _count(self, session: Mapping[str, Any], given: Given, outcome: _Outcome) -> None:
        """Note what became of a session, for the report."""
        merge = outcome.merge
        self.count += 1
        self.messages += outcome.added
        if outcome.kind == "unchanged":
            self.skipped.append(given.id)
        elif outcome.kind == "in use":
            self.in_use.append(outcome.here)
        elif outcome.kind == "new":
            self.added.append(outcome.here)
        elif outcome.added:
            self.grown[outcome.here] += outcome.added
        self.restored += [name for name in outcome.restored if name not in self.restored]
        if merge is not None and merge.branch is not None and outcome.added:
            self.branched[given.id] = merge.branch
        if merge is not None and not merge.missing and merge.plan.newer_here:
            self.newer_here[outcome.here] = merge.plan.newer_here
        if outcome.is_changed:
            self.updated.append(outcome.here)
        if merge is None and outcome.kind == "new":
            self.steering += import_policy.count_steering(session)
        elif merge is not None and outcome.added:
            said = session["messages"]
            self.steering += import_policy.count_steering({"messages": [said[at] for at in merge.missing]})

    def _read(self, session: Mapping[str, Any]) -> Given:
        if self.trusted:
            return Given.of(session)
        given = Given.of(import_policy.restrict(session))
        # A start in the future became the time of the import, which is another one the next time.
        return given if given.started_at == session.get("started_at") else given._replace(start_known=False)

    def _look(self, given: Given, spare: str) -> _Outcome:
        """What `_store` would do; ids that messages would be given are not known."""
        nowhere = [0] * len(given.old_ids)
        known = self.would_be_here.get(given.id)
        transcript = _compact(given.transcript())
        if known is not None:
            plan = plan_messages(known, transcript)
            if plan.action == "unchanged":
                return _Outcome(self.here[given.id], "unchanged", 0, nowhere)
            if plan.action == "append":
                self.would_be_here[given.id] = transcript
                return _Outcome(self.here[given.id], "grown", len(plan.missing), nowhere)
        with self.engine.read(settled=True) as reader:
            place = self._place(reader, given)
            merge = place.merge
            if merge is not None:
                kind = self._find_kind(reader, merge)
                self._allow_joins(merge)
                added = len(merge.missing) if kind in ("grown", "branched", "restored") else 0
                restored = _find_trashed(reader, merge) if kind == "restored" else ()
                here = merge.branch or merge.target.id
                return _Outcome(here, kind, added, merge.ids, merge, restored=restored)
        is_other = place.taken or given.id in self.here
        self.would_be_here[given.id] = transcript
        return _Outcome(spare if is_other else given.id, "new", len(given.messages), nowhere)

    def _store(self, writer: Writer, given: Given, spare: str) -> _Outcome:
        place = self._place(writer, given)
        if place.merge is not None:
            return self._merge(writer, given, place.merge)
        session_id = spare if place.taken else given.id
        ids = self._insert(writer, given, session_id)
        if place.taken:
            writer.run(meta.SET, given.notes()[0], spare)
        moved = set(ids).intersection(self.moved.values()) if self.moved else ()
        return _Outcome(session_id, "new", len(ids) - len(moved), ids)

    def _merge(self, writer: Writer, given: Given, merge: Merge) -> _Outcome:
        """Merge a session with the copy that is here."""
        kind = self._find_kind(writer, merge)
        restored: list[str] = []
        if kind == "restored":
            restored = _find_trashed(writer, merge)
            for session_id in restored:
                _bring_back(writer, session_id)
            again = find_merge(
                writer, merge.session.id, given, trusted=True, is_alias=merge.is_alias, moved=self.moved
            )
            assert again is not None  # the same messages as before
            merge = again
        self._allow_joins(merge)
        here = merge.branch or merge.target.id
        if kind == "in use" or merge.session.id in self.in_trash:
            return _Outcome(here, kind, 0, merge.ids, merge)
        done = apply_merge(writer, merge, given, trusted=self.trusted, added=self.joinable)
        self._note_title(merge.session.id, done.retitled)
        return _Outcome(here, kind, len(merge.missing), done.ids, merge, done.is_changed, restored)

    def _find_kind(
        self, reader: Reader, merge: Merge
    ) -> Literal["restored", "grown", "branched", "unchanged", "in use"]:
        """What a merge comes to."""
        if any(copy.row["trashed_at"] is not None for copy in (merge.session, merge.target)):
            if self.trusted:
                return "restored"
            self.in_trash.add(merge.session.id)  # a person put it there
            return "unchanged"
        if not merge.missing:
            return "unchanged"
        if merge.branch is not None:
            return "branched"
        # Whoever works in it may be between a tool call and its result.
        return "in use" if leases.standing(reader, merge.target.id) is not None else "grown"

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
        moved = self.moved.values() if self.moved else ()
        for message_id, attachments in zip(ids, given.attachments, strict=True):
            if message_id not in moved:
                blobs.attach(writer, message_id, attachments)
        for tag in given.tags:
            writer.run(ADD_TAG, session_id, tag)
        for call in given.model_calls:
            writer.insert(RECORD_CALL, session_id, *call)
        labels = given.labels()
        note_labels(writer, session_id, labels._replace(title=title), labels)
        if title != labels.title:
            writer.run(SET_TITLE, title, BY_STORE, session_id)
            self._note_title(session_id, Retitled(labels, labels))
        writer.run(derived.NOTE, session_id)
        derived.refresh(writer)
        return ids

    def _note_title(self, session_id: str, retitled: Retitled | None) -> None:
        """Note a title that may be free at the end of the import."""
        if retitled is not None and self.trusted:
            self.retitled[session_id] = retitled

    def _insert_messages(self, writer: Writer, given: Given, session_id: str) -> list[int]:
        uids = given.transcript().uids if self.moved else ()
        if any(uid in self.moved for uid in uids):
            ids = [
                self.moved.get(uid or "") or writer.insert(INSERT_MESSAGE, session_id, *row)
                for uid, row in zip(uids, given.messages, strict=True)
            ]
            recount(writer, session_id)
            return ids
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
        if self.retitled:
            self.engine.write(self._retitle, share=False)

    def _retitle(self, writer: Writer) -> None:
        """Give titles that are free by now: a title moves from a session to what continues it."""
        for session_id, (labels, incoming) in self.retitled.items():
            place = writer.row(OWNER, session_id)
            if labels.title is None or place is None:
                continue
            holder = writer.row(HELD_BY, labels.title, place[0], session_id)
            if holder is None or move_title(writer, labels.title, holder, session_id, place[1]):
                writer.run(SET_TITLE, labels.title, labels.title_by, session_id)
                note_labels(writer, session_id, labels, incoming)

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

    def _allow_joins(self, merge: Merge) -> None:
        """What an earlier import added can be completed, while nothing was said in it since."""
        if not self.trusted and merge.target.is_untrusted and not merge.plan.newer_here:
            self.joinable.add(merge.target.id)

    def _may_be_parent(self, session_id: str) -> bool:
        return self.trusted or session_id in self.joinable

    def _link(self, some: list[_Joint], writer: Writer) -> list[str]:
        alone: list[str] = []
        for one in some:
            parent = self._find_parent(writer, one)
            if parent is not None:
                self._join(writer, one, parent)
            elif self._is_alone(writer, one):
                alone.append(one.id)
            if one.context or one.rewound:
                self._carry(writer, one)
        derived.refresh(writer)
        return alone

    def _join(self, writer: Writer, one: _Joint, parent: str) -> None:
        """Give a session its parent. A second continuation of a conversation is a branch of it."""
        if writer.value(HAS_PARENT, one.id):
            return
        relation = one.relation
        if relation == "compression" or (
            relation is None and writer.value(HOW_ENDED, parent) == "compression"
        ):
            others = [row[0] for row in writer.rows(OTHER_CONTINUATIONS, parent, one.id)]
            went_on = parent in self.newer_here or any(other not in self.new for other in others)
            if went_on and parent not in self.new:
                relation = "branch"
                self.branched[one.given] = one.id
        writer.run(SET_PARENT, parent, relation, one.id)

    def _carry(self, writer: Writer, one: _Joint) -> None:
        """Restore what a session carries, and complete what an earlier import could not."""
        same = self._ids_of_owner(writer, one, one.context)
        live = [row[0] for row in writer.rows(LIVE, one.id)]
        is_whole = len(same) == sum(length(told) for told in one.context)
        is_rewound = not one.new and writer.rows(SET_ASIDE, one.id)  # on purpose, here
        if (one.newer and is_whole) or (len(same) > len(live) and not is_rewound):
            carry(writer, one.id, same)
            live = same
        if not is_whole:
            self.incomplete.append(one.id)
        if one.newer and is_whole:
            bring_back(writer, one.id, 0)
        if one.rewound and writer.value(LOWEST, one.id) in (None, 0):
            aside = self._ids_of_owner(writer, one, one.rewound)
            set_aside(writer, one.id, [message_id for message_id in aside if message_id not in live])

    def _ids_of_owner(self, writer: Writer, one: _Joint, ranges: list[Mapping[str, Any]]) -> list[int]:
        """The ids here of carried messages, of those that have the same owner as the session."""
        ids = self._ids(writer, ranges)
        return [message_id for message_id in ids if writer.value(SAME_OWNER, one.id, message_id)]

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
            grown=dict(self.grown),
            branched=self.branched,
            newer_here=self.newer_here,
            updated=tuple(dict.fromkeys(self.updated)),
            in_use=tuple(self.in_use),
            restored=tuple(self.restored),
            taken_over=dict(self.steering) if self.trusted else {},
            left_out={} if self.trusted else dict(self._left_out()),
        )

    def _left_out(self) -> Counter[str]:
        found = Counter(
            {import_policy.PARENT: len(self.unjoined), import_policy.FROM_TRASH: len(self.in_trash)}
        )
        return self.steering + found

    def _place(self, reader: Reader, given: Given) -> _Place:
        """Where a given session is.

        A session that went on since, or got another id the last time, is recognised by its messages. Without trust it
        gets no id by which a person means another one.
        """
        row = reader.row(PLACE, given.id)
        merge = None
        if row is None:
            parent = None if given.parent is None else self.here.get(given.parent, given.parent)
            alias = find_alias(reader, given, parent)
            if alias is not None:
                merge = find_merge(reader, alias, given, trusted=self.trusted, is_alias=True)
        elif row[0] == given.source and (row[1] == given.started_at or not given.start_known):
            merge = find_merge(reader, given.id, given, trusted=self.trusted, moved=self.moved)
        if merge is not None:
            return _Place(merge)
        if row is None and (self.trusted or not import_policy.is_misleading_id(reader, given.id)):
            return _Place()
        for note in given.notes():
            other = reader.value(meta.GET, note)
            merge = None if other is None else find_merge(reader, other, given, trusted=self.trusted)
            if merge is not None:
                return _Place(merge)
        return _Place(taken=True)


def _compact(transcript: Transcript) -> Transcript:
    """The same messages, without holding their contents in memory."""
    contents = [hash(content) for content in transcript.read_contents()]
    return transcript._replace(read_contents=lambda: contents)


def _find_trashed(reader: Reader, merge: Merge) -> list[str]:
    """The sessions in the trash to which a merge leads."""
    return [name for name in merge.visited if reader.value(IS_TRASHED, name)]


def _bring_back(writer: Writer, session_id: str) -> None:
    from hermes.store.trash import bring_back

    bring_back(writer, session_id)
    derived.refresh(writer)
