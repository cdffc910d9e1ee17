"""Results of an import, collected for its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hermes.store.transfer import import_policy
from hermes.store.transfer.incoming_session import IncomingSession
from hermes.store.transfer.session_copies import Merge
from hermes.store.values import Imported


class Outcome(NamedTuple):
    """What an import did with one incoming session. In a dry run, what it would do."""

    here: str
    """The id of the session in this store."""
    kind: Literal["new", "restored", "grown", "branched", "unchanged", "in use"]
    """`new`: the session was created. `restored`: it was taken out of the trash. `grown`: messages were added
    to it. `branched`: the messages went to a new branch. `unchanged`: all messages were stored already.
    `in use`: nothing was added, because another process is working in the session."""
    added: int
    """The number of added messages."""
    ids: Sequence[int]
    """The stored id of each incoming message, or 0 if it is unknown."""
    merge: Merge | None = None
    is_changed: bool = False
    """Whether anything except messages changed in a session that already existed."""
    restored: Sequence[str] = ()
    """The sessions that were restored from the trash."""
    has_moved: bool = False
    """Whether some messages of the incoming session are stored in other sessions."""

    @property
    def is_itself(self) -> bool:
        """Return whether the stored session `here` is the incoming session itself. False if it is a branch of
        the incoming session, or another session that contains the same messages."""
        return self.merge is None or not (self.merge.is_branched or self.merge.is_alias)


class Report:
    def __init__(self) -> None:
        self.count = 0
        """The number of incoming sessions."""
        self.messages = 0
        self.steering: Counter[str] = Counter()
        self.added: list[str] = []
        self.restored: list[str] = []
        self.skipped: list[str] = []
        self.grown: Counter[str] = Counter()
        self.branched: dict[str, str] = {}
        self.newer_here: dict[str, int] = {}
        self.updated: list[str] = []
        self.in_use: list[str] = []
        self.in_trash: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.detached: list[str] = []
        self.unjoined: set[str] = set()
        self.incomplete: list[str] = []

    def add(self, session: Mapping[str, Any], incoming: IncomingSession, outcome: Outcome) -> None:
        """Add the outcome for one incoming session to this report. `session` is the session as in the file."""
        merge = outcome.merge
        self.count += 1
        self.messages += outcome.added
        if outcome.kind == "unchanged":
            self.skipped.append(incoming.id)
        elif outcome.kind == "in use":
            self.in_use.append(outcome.here)
        elif outcome.kind == "new":
            self.added.append(outcome.here)
        elif outcome.added:
            self.grown[outcome.here] += outcome.added
        self.restored += [name for name in outcome.restored if name not in self.restored]
        if merge is not None and merge.branch is not None and outcome.added:
            self.branched[incoming.id] = merge.branch
        if merge is not None and not merge.missing and merge.plan.newer_here:
            self.newer_here[outcome.here] = merge.plan.newer_here
        if outcome.is_changed:
            self.updated.append(outcome.here)
        if merge is None and outcome.kind == "new":
            self.steering += import_policy.count_steering(session)
        elif merge is not None and outcome.added:
            messages = session["messages"]
            self.steering += import_policy.count_steering(
                {"messages": [messages[at] for at in merge.missing]}
            )

    def make_result(self, *, trusted: bool) -> Imported:
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
            taken_over=dict(self.steering) if trusted else {},
            left_out={} if trusted else dict(self.steering + self._count_left_out()),
        )

    def _count_left_out(self) -> Counter[str]:
        found = {import_policy.PARENT: len(self.unjoined), import_policy.FROM_TRASH: len(self.in_trash)}
        return Counter(found)
