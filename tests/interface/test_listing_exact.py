"""After any sequence of verbs, a list equals the list that a slow and simple implementation of the rules
computes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import ids, new_id, passing
from tests.stored_rows import change_rows, insert_row
from tests.tiers import scale_examples

RELATIONS = {"compression": "compression", "branched": "branch"}
EVERYTHING = 100_000


@dataclass
class Known:
    id: str
    started: float
    source: str
    parent: Known | None = None
    relation: str | None = None
    reason: str | None = None
    messages: list[tuple[int, str, float]] = field(default_factory=list)

    @property
    def active(self) -> float:
        return max((when for _, _, when in self.messages), default=self.started)

    @property
    def preview(self) -> str:
        return self.messages[0][1] if self.messages else ""


class Rules:
    """Applies every verb to the store and to a simple model of the store."""

    def __init__(self, db: SessionDB) -> None:
        self.db = db
        self.known: list[Known] = []
        self.clock = 1000.0

    # Steps

    def create(self, nth: int, below: bool) -> None:
        parent = self.pick(nth) if below else None
        relation = RELATIONS.get(parent.reason or "") if parent else None
        if parent and relation == "compression" and self.continuation(parent):
            return
        made = Known(new_id(), 0.0, ["cli", "telegram"][nth % 2], parent, relation)
        self.db.create_session(made.id, made.source, parent_session_id=parent.id if parent else None)
        row = self.db.get_session(made.id)
        assert row is not None
        made.started = row["started_at"]
        self.known.append(made)

    def say(self, nth: int, plain: bool) -> None:
        if here := self.pick(nth):
            self.clock = 5e9 - self.clock if plain else self.clock + 7
            text = f"said {self.clock}"
            if plain:
                number = insert_row(
                    self.db,
                    "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)",
                    *(here.id, text, self.clock),
                )
            else:
                number = self.db.append_message(here.id, "user", text, timestamp=self.clock)
            here.messages.append((number, text, self.clock))

    def unsay(self, nth: int, plain: bool) -> None:
        if here := self.pick(nth):
            if plain:
                change_rows(self.db, "DELETE FROM messages WHERE session_id = ?", here.id)
            else:
                self.db.clear_messages(here.id)
            here.messages.clear()

    def end(self, nth: int, reason: str) -> None:
        if here := self.pick(nth):
            self.db.end_session(here.id, reason)
            here.reason = here.reason or reason

    def reopen(self, nth: int) -> None:
        if here := self.pick(nth):
            self.db.reopen_session(here.id)
            here.reason = None

    def delete(self, nth: int) -> None:
        if here := self.pick(nth):
            assert self.db.delete_session(here.id)
            self.known.remove(here)
            for other in self.known:
                if other.parent is here:
                    other.parent = None

    def pick(self, nth: int) -> Known | None:
        return self.known[nth % len(self.known)] if self.known else None

    # Checks

    def continuation(self, one: Known) -> Known | None:
        return next(
            (child for child in self.known if child.parent is one and child.relation == "compression"), None
        )

    def chain(self, one: Known) -> list[Known]:
        found = [one]
        while following := self.continuation(found[-1]):
            found.append(following)
        return found

    def check(self) -> None:
        listed = [one for one in self.known if one.parent is None or one.relation == "branch"]
        by_start = sorted(listed, key=lambda one: (one.started, one.id), reverse=True)
        by_activity = sorted(
            listed,
            key=lambda one: (max(each.active for each in self.chain(one)), one.started, one.id),
            reverse=True,
        )
        self.compare(by_start, self.db.list_sessions_rich(limit=EVERYTHING))
        self.compare(by_activity, self.db.list_sessions_rich(limit=EVERYTHING, order_by_last_active=True))
        self.compare(
            by_activity[1:3], self.db.list_sessions_rich(limit=2, offset=1, order_by_last_active=True)
        )
        self.compare(
            [one for one in by_start if one.source == "cli"],
            self.db.list_sessions_rich("cli", limit=EVERYTHING),
        )
        assert ids(self.db.list_sessions_rich(limit=EVERYTHING, project_compression_tips=False)) == [
            one.id for one in by_start
        ]
        every = sorted(self.known, key=lambda one: (one.active, one.started, one.id), reverse=True)
        assert ids(self.db.search_sessions(limit=EVERYTHING)) == [one.id for one in every]
        assert self.db.session_count() == len(self.known)
        for entry in self.known:
            assert self.db.get_compression_tip(entry.id) == self.chain(entry)[-1].id

    def compare(self, expected: list[Known], rows: list[dict[str, Any]]) -> None:
        tips = [self.chain(one)[-1] for one in expected]
        assert ids(rows) == [tip.id for tip in tips]
        assert [row.get("_lineage_root_id", row["id"]) for row in rows] == [one.id for one in expected]
        assert [row["started_at"] for row in rows] == [one.started for one in expected]
        assert [row["last_active"] for row in rows] == [tip.active for tip in tips]
        previews = [[segment.preview for segment in reversed(self.chain(one))] for one in expected]
        assert [row["preview"] for row in rows] == [next(filter(None, each), "") for each in previews]


NTH = st.integers(0, 7)
STEPS = st.lists(
    st.tuples(st.just("create"), NTH, st.booleans())
    | st.tuples(st.just("create"), NTH, st.just(True))
    | st.tuples(st.just("say"), NTH, st.booleans())
    | st.tuples(st.just("unsay"), NTH, st.booleans())
    | st.tuples(st.just("end"), NTH, st.sampled_from(["compression", "compression", "branched", "cli_close"]))
    | st.tuples(st.just("reopen"), NTH)
    | st.tuples(st.just("delete"), NTH),
    min_size=4,
    max_size=20,
)


@settings(max_examples=scale_examples(100))
@given(STEPS)
def test_lists_show_exactly_what_the_rules_say(shelf: SessionDB, steps: list[tuple[Any, ...]]) -> None:
    with passing(shelf):
        rules = Rules(shelf)
        rules.create(0, False)
        for nth, (verb, *arguments) in enumerate(steps):
            getattr(rules, verb)(*arguments)
            if nth % 3 == 2:
                rules.check()
        rules.check()
        assert shelf.verify().drift == ()
