"""Join the sessions of an import to their parents, and restore what they carry.

Parents and carried messages may come later in an import than the sessions that refer to them. So this is done at the
end, when the ids of all sessions and messages are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes.store import derived
from hermes.store.engine import Access, Reader, Writer
from hermes.store.sessions.carried_context import LIVE, LOWEST, SET_ASIDE, bring_back, carry, set_aside
from hermes.store.sessions.sessions import EXISTS
from hermes.store.transfer.context_import import Run, length, ranges_here, runs
from hermes.store.transfer.import_report import Outcome, Report
from hermes.store.transfer.incoming_session import ACTIVE, Given

LINKS_AT_ONCE = 100

SET_PARENT = (
    "UPDATE sessions SET parent_session_id = ?, relation = ? WHERE id = ? AND parent_session_id IS NULL"
)
OTHER_CONTINUATIONS = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression'
    AND trashed_at IS NULL AND id <> ?"""
HOW_ENDED = "SELECT end_reason FROM sessions WHERE id = ?"
HAS_PARENT = "SELECT parent_session_id IS NOT NULL FROM sessions WHERE id = ?"
SAME_OWNER = """SELECT 1 FROM sessions s, messages m JOIN sessions o ON o.id = m.session_id
    WHERE s.id = ? AND m.id = ? AND o.owner = s.owner"""
IS_OWN = "SELECT 1 FROM messages WHERE id = ? AND session_id = ?"


class _Joint(NamedTuple):
    """A session whose parent and carried messages are set at the end."""

    id: str
    given: str
    parent: str | None
    relation: str | None
    context: list[Mapping[str, Any]]
    rewound: list[Mapping[str, Any]]
    own: list[int]
    """If other sessions here hold some of its own live messages, all of those in order."""
    is_new: bool
    is_newer: bool
    """Whether the given copy is newer than the one that is here."""


class Links:
    def __init__(self, engine: Access, report: Report, *, trusted: bool) -> None:
        self._engine = engine
        self._report = report
        self._trusted = trusted
        self._waiting: list[_Joint] = []
        self._new: set[str] = set()
        """The sessions that this import made."""
        self._runs: dict[str, list[Run]] = {}
        """Where the messages of each given session are."""
        self.here: dict[str, str] = {}
        """The id here of each given session."""
        self.joinable: set[str] = set()
        """Without trust, the only sessions that get parents, children or carried messages."""

    def add(self, given: Given, outcome: Outcome) -> None:
        """Note where a given session is."""
        self.here[given.id] = outcome.here
        if outcome.kind in ("new", "restored", "branched"):
            self.joinable.add(outcome.here)
        if outcome.kind in ("new", "branched"):
            self._new.add(outcome.here)
        is_joinable = self.may_join(outcome.here)
        pairs = zip(given.old_ids, outcome.ids, strict=True)
        self._runs[given.id] = runs(pairs) if is_joinable else []
        own: list[int] = []
        if outcome.has_moved and outcome.added + (outcome.kind == "new"):
            messages = zip(outcome.ids, given.messages, strict=True)
            own = [message_id for message_id, row in messages if message_id and row[ACTIVE]]
        has_links = given.parent is not None or given.context or given.rewound or own
        if is_joinable and outcome.is_itself and has_links:
            is_newer = outcome.merge is not None and outcome.merge.newer_side == "incoming"
            is_new = outcome.kind in ("new", "restored")
            self._waiting.append(
                _Joint(
                    outcome.here,
                    given.id,
                    given.parent,
                    given.relation,
                    given.context,
                    given.rewound,
                    own,
                    is_new,
                    is_newer,
                )
            )

    def may_join(self, session_id: str) -> bool:
        return self._trusted or session_id in self.joinable

    def find_parent(self, given: Given) -> str | None:
        """The parent of a given session, if that was given before it."""
        parent = None if given.parent is None else self.here.get(given.parent)
        return parent if parent is not None and self.may_join(parent) else None

    def make(self, *, dry_run: bool) -> None:
        """Join what was added."""
        self._waiting.reverse()  # parents were mostly given after their children
        for at in range(0, len(self._waiting), LINKS_AT_ONCE):
            some = self._waiting[at : at + LINKS_AT_ONCE]
            if dry_run:
                with self._engine.read() as reader:
                    self._report.detached += [joint.id for joint in some if self._is_alone(reader, joint)]
            else:
                self._report.detached += self._engine.write(partial(self._link, some), share=False)
        self._waiting = []

    def _is_alone(self, reader: Reader, joint: _Joint) -> bool:
        """Whether a new session has a parent that is neither here nor was given."""
        is_joined = self._find_parent(reader, joint) is not None or joint.id in self._report.unjoined
        return joint.is_new and joint.parent is not None and not is_joined

    def _find_parent(self, reader: Reader, joint: _Joint) -> str | None:
        """The parent that a session gets. Without trust nothing joins a family that was here before."""
        if joint.parent is None:
            return None
        parent = self.here.get(joint.parent, joint.parent)
        if self.may_join(parent):
            return parent if parent in self.joinable or reader.value(EXISTS, parent) else None
        if reader.value(EXISTS, parent):
            self._report.unjoined.add(joint.id)
        return None

    def _link(self, some: list[_Joint], writer: Writer) -> list[str]:
        alone: list[str] = []
        for joint in some:
            parent = self._find_parent(writer, joint)
            if parent is not None:
                self._join(writer, joint, parent)
            elif self._is_alone(writer, joint):
                alone.append(joint.id)
            if joint.context or joint.rewound or joint.own:
                self._carry(writer, joint)
        derived.refresh(writer)
        return alone

    def _join(self, writer: Writer, joint: _Joint, parent: str) -> None:
        """Give a session its parent. A second continuation of a conversation is a branch of it."""
        if writer.value(HAS_PARENT, joint.id):
            return
        relation = joint.relation
        if relation == "compression" or (
            relation is None and writer.value(HOW_ENDED, parent) == "compression"
        ):
            others = [row[0] for row in writer.rows(OTHER_CONTINUATIONS, parent, joint.id)]
            went_on = parent in self._report.newer_here or any(other not in self._new for other in others)
            if went_on and parent not in self._new:
                relation = "branch"
                self._report.branched[joint.given] = joint.id
        writer.run(SET_PARENT, parent, relation, joint.id)

    def _carry(self, writer: Writer, joint: _Joint) -> None:
        """Restore what a session carries, and complete what an earlier import could not."""
        wanted = self._find_ids(writer, joint, joint.context)
        live = [row[0] for row in writer.rows(LIVE, joint.id)]
        is_whole = len(wanted) == sum(length(entry) for entry in joint.context)
        if joint.own:
            wanted = _add_own(writer, joint, wanted if joint.is_new else [*live, *wanted])
        is_rewound = not joint.is_new and writer.rows(SET_ASIDE, joint.id)  # on purpose, here
        if (joint.is_newer and is_whole) or (len(wanted) > len(live) and not is_rewound):
            carry(writer, joint.id, wanted)
            live = wanted
        if not is_whole:
            self._report.incomplete.append(joint.id)
        if joint.is_newer and is_whole:
            bring_back(writer, joint.id, 0)
        if joint.rewound and writer.value(LOWEST, joint.id) in (None, 0):
            aside = self._find_ids(writer, joint, joint.rewound)
            set_aside(writer, joint.id, [message_id for message_id in aside if message_id not in live])

    def _find_ids(self, reader: Reader, joint: _Joint, ranges: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids here of carried messages, of those that have the same owner as the session."""
        found = ranges_here(reader, self._runs, ranges, only_known=not self._trusted)
        ids = (message_id for first, last in found for message_id in range(first, last + 1))
        return [message_id for message_id in ids if reader.value(SAME_OWNER, joint.id, message_id)]


def _add_own(reader: Reader, joint: _Joint, carried: Sequence[int]) -> list[int]:
    """Carried messages and, behind them, the others of the session. Its own at the end need not be carried."""
    ids = list(dict.fromkeys([*carried, *joint.own]))
    while len(ids) > len(carried) and reader.value(IS_OWN, ids[-1], joint.id):
        ids.pop()
    return ids
