"""Import of sessions: one transaction per session, idempotent, without loss.

If the store already has a copy of a session, the two copies are merged; see `merge`. A message is stored only
once. If a message is already stored in another session, it stays there, and the imported session carries it.

In a file, a session can come before its parent, or before the session whose messages it carries. Such links
are made at the end; see `import_links`.

The messages of a new session keep their ids if the ids are free and higher than any id in the store when the
import began. After an import into an empty store, an export therefore gives the same file again. An id that
another message had before is not reused, because something may still refer to it.

An untrusted import only adds data. It imports the columns that `import_policy` lists as data, and links new
sessions only to each other. The only existing sessions that it changes are those of earlier untrusted imports
that nobody has written to since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hermes.store import derived, meta
from hermes.store.chats import leases
from hermes.store.engine import Access, Reader, Writer
from hermes.store.reports.usage import INSERT as RECORD_CALL
from hermes.store.sessions import blobs
from hermes.store.sessions.carried_context import recount_messages
from hermes.store.sessions.labels import ADD_TAG
from hermes.store.sessions.sessions import new_session_id
from hermes.store.sessions.title_notes import BY_STORE
from hermes.store.sessions.titles import HELD_BY, OWNER, find_free_title, move_title
from hermes.store.sessions.titles import SET as SET_TITLE
from hermes.store.transfer import import_policy
from hermes.store.transfer.import_links import Links
from hermes.store.transfer.import_report import Outcome, Report
from hermes.store.transfer.incoming_session import (
    INSERT_MESSAGE,
    INSERT_SESSION,
    INSERT_WITH_ID,
    TIMESTAMP,
    IncomingSession,
)
from hermes.store.transfer.merge import Retitled, apply_merge, note_labels
from hermes.store.transfer.merge_plan import Transcript, plan_messages
from hermes.store.transfer.session_copies import Merge, find_alias, find_merge, is_same_family
from hermes.store.transfer.stored_messages import Stored, StoredMessages
from hermes.store.values import Imported

PLACE = "SELECT source, started_at, owner FROM sessions WHERE id = ?"
HIGHEST = "SELECT coalesce(max(id), 0) FROM messages"
IS_TRASHED = "SELECT trashed_at IS NOT NULL FROM sessions WHERE id = ?"
IS_TAKEN = "SELECT 1 FROM messages WHERE id = ?"
# The search index continues above the highest id it has seen. Lower ids must be noted.
NOTE_BELOW = "INSERT INTO changed_messages (message_id) VALUES (?) ON CONFLICT DO NOTHING"

HIGHEST_KEPT = 2**40
"""Ids from a file are kept only below this limit. A higher id could leave too few ids for later messages."""

Moved = Mapping[int, Stored]
"""The messages of an incoming session that are stored in another session, by position in the incoming
session."""


class _Place(NamedTuple):
    """How an incoming session relates to the sessions in the store."""

    merge: Merge | None = None
    """The merge with the stored copy. None if the store has no copy."""
    taken: bool = False
    """Whether the incoming session needs another id, because its id belongs or refers to a different stored
    session."""


class ImportedSession(NamedTuple):
    """What an import reports to its caller about one session."""

    id_in_file: str
    here: str
    """The id in this store. It differs from `id_in_file` if that id belonged to a different session."""
    messages: int | None
    """The number of added messages. None if the session was already complete or was in use. 0 if it was only
    restored from the trash."""


class Import:
    """An import in progress. When its context is left, even after an error, the imported sessions are linked.

    A dry run only reads and reports. With `trusted`, values that control behaviour are imported too.
    """

    def __init__(self, engine: Access, dry_run: bool = False, *, trusted: bool = False) -> None:
        self.engine = engine
        self.dry_run = dry_run
        self.trusted = trusted
        self._report = Report()
        self._links = Links(engine, self._report, trusted=trusted)
        self._stored = StoredMessages()
        self._carried: set[int] = set()
        """Stored ids of messages that an incoming session both contains and carries."""
        self._retitled: dict[str, Retitled] = {}
        """Sessions that could not get their title, because another session has it."""
        self._would_be_here: dict[str, Transcript] = {}
        """In a dry run, the messages of the sessions that would be created, by id in the file."""
        with engine.read(settled=True) as reader:
            self._floor: int = reader.value(HIGHEST)
            self._stored.refresh(reader)

    def __enter__(self) -> Import:
        return self

    def __exit__(self, *_: object) -> None:
        self.link()

    @property
    def count(self) -> int:
        """The number of sessions that this import has processed so far."""
        return self._report.count

    @property
    def in_use(self) -> Sequence[str]:
        """The ids of the stored sessions to which this import did not add messages, because another process is
        working in them."""
        return self._report.in_use

    def take(self, session: Mapping[str, Any]) -> ImportedSession:
        """Import one session atomically. If the session is invalid, raise an error; further sessions can
        still be imported."""
        incoming = self._parse(session)
        spare = new_session_id()
        if self.dry_run:
            outcome = self._preview(incoming, spare)
        else:
            outcome = self.engine.write(lambda writer: self._store(writer, incoming, spare), share=False)
        self._links.add(incoming, outcome)
        self._note_messages(incoming, outcome)
        self._report.add(session, incoming, outcome)
        if outcome.kind == "new" and outcome.here == spare:
            self._report.renamed[incoming.id] = spare
        is_here = outcome.kind in ("unchanged", "in use")
        return ImportedSession(incoming.id, outcome.here, None if is_here else outcome.added)

    def link(self) -> None:
        """Link the imported sessions to their parents and to their carried messages. Also set the titles that
        sessions did not get earlier in this import and that have become free."""
        self._links.make(dry_run=self.dry_run)
        if self._retitled:
            self.engine.write(self._retitle, share=False)

    def make_result(self) -> Imported:
        return self._report.make_result(trusted=self.trusted)

    def _parse(self, session: Mapping[str, Any]) -> IncomingSession:
        if self.trusted:
            return IncomingSession.parse(session)
        incoming = IncomingSession.parse(import_policy.restrict(session))
        # A start in the future was replaced by the time of the import. That time differs between imports, so
        # the start counts as unknown.
        return (
            incoming
            if incoming.started_at == session.get("started_at")
            else incoming._replace(start_known=False)
        )

    def _preview(self, incoming: IncomingSession, spare: str) -> Outcome:
        """Return the outcome that `_store` would have for an incoming session, without changing the store. The
        ids of new messages are unknown, so they are 0 in the outcome."""
        nowhere = [0] * len(incoming.old_ids)
        earlier = self._would_be_here.get(incoming.id)
        transcript = _compact_transcript(incoming.make_transcript())
        if earlier is not None:
            plan = plan_messages(earlier, transcript)
            if plan.action == "unchanged":
                return Outcome(self._links.here[incoming.id], "unchanged", 0, nowhere)
            if plan.action == "append":
                self._would_be_here[incoming.id] = transcript
                return Outcome(self._links.here[incoming.id], "grown", len(plan.missing), nowhere)
        with self.engine.read(settled=True) as reader:
            moved = self._find_moved(reader, incoming)
            place = self._find_place(reader, incoming, moved)
            merge = place.merge
            if merge is not None:
                kind = self._find_kind(reader, merge)
                self._allow_joins(merge)
                added = len(merge.missing) if kind in ("grown", "branched", "restored") else 0
                restored = _find_trashed(reader, merge) if kind == "restored" else ()
                here = merge.branch or merge.target.id
                return Outcome(here, kind, added, merge.ids, merge, restored=restored)
        is_other = place.taken or incoming.id in self._links.here
        self._would_be_here[incoming.id] = transcript
        return Outcome(
            spare if is_other else incoming.id, "new", len(incoming.messages) - len(moved), nowhere
        )

    def _store(self, writer: Writer, incoming: IncomingSession, spare: str) -> Outcome:
        moved = self._find_moved(writer, incoming)
        place = self._find_place(writer, incoming, moved)
        if place.merge is not None:
            return self._merge(writer, incoming, place.merge, moved)
        session_id = spare if place.taken else incoming.id
        ids = self._insert(writer, incoming, session_id, moved)
        if place.taken:
            writer.run(meta.SET, incoming.list_note_keys()[0], spare)
        return Outcome(session_id, "new", len(ids) - len(moved), ids, has_moved=bool(moved))

    def _find_moved(self, reader: Reader, incoming: IncomingSession) -> Moved:
        """Return those messages of an incoming session that are now stored in another session, by their
        position in the incoming session.

        When a session is deleted or its messages are replaced, a message that another session carries moves to
        that other session. In all other cases, an equal uid comes from a copy of a file that a person made, and
        is ignored.
        """
        self._stored.refresh(reader)
        carried = incoming.find_carried()
        row = reader.row(PLACE, incoming.id)
        owner = incoming.owner if row is None else row[2]
        moved: dict[int, Stored] = {}
        for place, (uid, message) in enumerate(
            zip(incoming.make_transcript().uids, incoming.messages, strict=True)
        ):
            stored = self._stored.find(reader, uid, message[TIMESTAMP]) if uid else None
            if stored is None or stored.owner != owner or not self._links.can_join(stored.session_id):
                continue
            is_moved = place in carried or stored.is_carried or stored.id in self._carried
            if is_moved or is_same_family(stored.session_id, incoming.id):
                moved[place] = stored
        return moved

    def _note_messages(self, incoming: IncomingSession, outcome: Outcome) -> None:
        """Remember the messages of an imported session, so that they are found for the sessions that come after
        it in the file."""
        self._carried.update(filter(None, (outcome.ids[place] for place in incoming.find_carried())))
        if outcome.kind == "new":
            messages = zip(incoming.messages, outcome.ids, strict=True)
            highest = self._stored.highest
            self._stored.add((row[TIMESTAMP], number) for row, number in messages if 0 < number <= highest)

    def _merge(self, writer: Writer, incoming: IncomingSession, merge: Merge, moved: Moved) -> Outcome:
        """Merge an incoming session into its stored copy as `merge` says, and return the outcome. If the stored
        copy is in the trash, a trusted import first takes it out."""
        kind = self._find_kind(writer, merge)
        restored: list[str] = []
        if kind == "restored":
            restored = _find_trashed(writer, merge)
            for session_id in restored:
                _restore_trashed(writer, session_id)
            again = find_merge(
                writer, merge.session.id, incoming, trusted=True, is_alias=merge.is_alias, moved=moved
            )
            assert again is not None  # the same messages as before
            merge = again
        self._allow_joins(merge)
        here = merge.branch or merge.target.id
        if kind == "in use" or merge.session.id in self._report.in_trash:
            return Outcome(here, kind, 0, merge.ids, merge)
        done = apply_merge(writer, merge, incoming, trusted=self.trusted, added=self._links.joinable)
        self._note_title(merge.session.id, done.retitled)
        has_moved = any(not is_same_family(stored.session_id, merge.session.id) for stored in moved.values())
        changes = (done.is_changed, restored, has_moved)
        return Outcome(here, kind, len(merge.missing), done.ids, merge, *changes)

    def _find_kind(
        self, reader: Reader, merge: Merge
    ) -> Literal["restored", "grown", "branched", "unchanged", "in use"]:
        """Return the value of `Outcome.kind` for an incoming session that is merged with a stored copy."""
        if any(copy.row["trashed_at"] is not None for copy in (merge.session, merge.target)):
            if self.trusted:
                return "restored"
            self._report.in_trash.add(merge.session.id)  # a person moved it to the trash
            return "unchanged"
        if not merge.missing:
            return "unchanged"
        if merge.branch is not None:
            return "branched"
        # The other process may be between a tool call and its result.
        return "in use" if leases.find_live_lease(reader, merge.target.id) is not None else "grown"

    def _insert(self, writer: Writer, incoming: IncomingSession, session_id: str, moved: Moved) -> list[int]:
        title = incoming.title
        if title is not None and not self.trusted:
            title = import_policy.clear_title(writer, title, self._links.joinable)
        if title is not None:
            title = find_free_title(writer, title, incoming.owner, session_id)
        parent = self._links.find_parent(incoming)
        family = (parent, incoming.relation if parent is not None else None)
        start = (session_id, incoming.source, incoming.started_at, title, incoming.owner)
        writer.run(INSERT_SESSION, *start, *family, *incoming.counts, *incoming.rest)
        ids = self._insert_messages(writer, incoming, session_id, moved)
        for place, attachments in enumerate(incoming.attachments):
            if place not in moved:
                blobs.attach_blobs(writer, ids[place], attachments)
        for tag in incoming.tags:
            writer.run(ADD_TAG, session_id, tag)
        for call in incoming.model_calls:
            writer.insert(RECORD_CALL, session_id, *call)
        labels = incoming.make_labels()
        note_labels(writer, session_id, labels._replace(title=title), labels)
        if title != labels.title:
            writer.run(SET_TITLE, title, BY_STORE, session_id)
            self._note_title(session_id, Retitled(labels, labels))
        writer.run(derived.NOTE, session_id)
        derived.refresh(writer)
        return ids

    def _note_title(self, session_id: str, retitled: Retitled | None) -> None:
        """Remember a title that the stored session `session_id` did not get, because another session has it.
        The title may become free by the end of the import. An untrusted import does not remember it. If
        `retitled` is None, do nothing."""
        if retitled is not None and self.trusted:
            self._retitled[session_id] = retitled

    def _insert_messages(
        self, writer: Writer, incoming: IncomingSession, session_id: str, moved: Moved
    ) -> list[int]:
        if moved:
            ids = [
                moved[place].id if place in moved else writer.insert(INSERT_MESSAGE, session_id, *row)
                for place, row in enumerate(incoming.messages)
            ]
            recount_messages(writer, session_id)
            return ids
        if not self._can_keep_ids(writer, incoming.old_ids):
            return [writer.insert(INSERT_MESSAGE, session_id, *row) for row in incoming.messages]
        highest = writer.value(HIGHEST)
        for message_id, row in zip(incoming.old_ids, incoming.messages, strict=True):
            writer.insert(INSERT_WITH_ID, message_id, session_id, *row)
            if message_id <= highest:
                writer.run(NOTE_BELOW, message_id)
        return incoming.old_ids

    def _can_keep_ids(self, reader: Reader, ids: Sequence[Any]) -> bool:
        """Return whether new messages can be stored with `ids`, their ids in the file. The ids must be
        increasing, free, and higher than any id in the store when the import began."""
        before = self._floor
        for message_id in ids:
            if type(message_id) is not int or not before < message_id < HIGHEST_KEPT:
                return False
            before = message_id
        return not any(reader.value(IS_TAKEN, message_id) for message_id in ids)

    def _retitle(self, writer: Writer) -> None:
        """Set the titles that sessions did not get earlier in this import, if they are free now. For example, a
        title becomes free when it moves from a session to its continuation."""
        for session_id, (labels, incoming) in self._retitled.items():
            place = writer.row(OWNER, session_id)
            if labels.title is None or place is None:
                continue
            holder = writer.row(HELD_BY, labels.title, place[0], session_id)
            if holder is None or move_title(writer, labels.title, holder, session_id, place[1]):
                writer.run(SET_TITLE, labels.title, labels.title_by, session_id)
                note_labels(writer, session_id, labels, incoming)

    def _allow_joins(self, merge: Merge) -> None:
        """Allow this untrusted import to link new sessions to the stored session that `merge` changes. This is
        allowed only if an untrusted import created that stored session and nobody has written to it since. A
        trusted import needs no such permission."""
        if not self.trusted and merge.target.is_untrusted and not merge.plan.newer_here:
            self._links.joinable.add(merge.target.id)

    def _find_place(self, reader: Reader, incoming: IncomingSession, moved: Moved) -> _Place:
        """Find the stored copy of an incoming session, and decide whether the incoming session needs another
        id.

        If the stored copy was continued, or got another id in an earlier import, it is recognised by its
        messages. An incoming session of an untrusted file does not get an id that already refers to another
        session.
        """
        row = reader.row(PLACE, incoming.id)
        merge = None
        if row is None:
            parent = (
                None if incoming.parent is None else self._links.here.get(incoming.parent, incoming.parent)
            )
            alias = find_alias(reader, incoming, parent)
            if alias is not None:
                merge = find_merge(reader, alias, incoming, trusted=self.trusted, is_alias=True, moved=moved)
        elif row[0] == incoming.source and (row[1] == incoming.started_at or not incoming.start_known):
            merge = find_merge(reader, incoming.id, incoming, trusted=self.trusted, moved=moved)
        if merge is not None:
            return _Place(merge)
        if row is None and (self.trusted or not import_policy.is_misleading_id(reader, incoming.id)):
            return _Place()
        for note in incoming.list_note_keys():
            other = reader.value(meta.GET, note)
            if other is not None:
                merge = find_merge(reader, other, incoming, trusted=self.trusted, moved=moved)
            if merge is not None:
                return _Place(merge)
        return _Place(taken=True)


def _compact_transcript(transcript: Transcript) -> Transcript:
    """Return a copy of a transcript with a hash in place of the content of each message, to save memory."""
    contents = [hash(content) for content in transcript.read_contents()]
    return transcript._replace(read_contents=lambda: contents)


def _find_trashed(reader: Reader, merge: Merge) -> list[str]:
    """Return the ids of the stored sessions that a merge uses and that are in the trash."""
    return [name for name in merge.visited if reader.value(IS_TRASHED, name)]


def _restore_trashed(writer: Writer, session_id: str) -> None:
    from hermes.store.retention.trash import restore_session

    restore_session(writer, session_id)
    derived.refresh(writer)
