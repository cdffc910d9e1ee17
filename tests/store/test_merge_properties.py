"""Two stores with random histories exchange exports. Nothing is lost or duplicated, and the stores converge."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from hermes.errors import InvalidTitle
from hermes.store.transfer.merge_plan import Transcript, plan_messages
from hermes.store.values import Imported
from hermes_state import SessionDB
from tests.stored_rows import read_rows

T = 1_780_000_000.0

STEPS = st.tuples(
    st.sampled_from(
        [
            "append",
            "append",
            "append",
            "rename",
            "tag",
            "untag",
            "compress",
            "branch",
            "end",
            "rewind",
            "send",
        ]
    ),
    st.integers(0, 5),
    st.integers(0, 5),
)
EDITING_STEPS = st.tuples(
    st.sampled_from(
        [
            *("append", "append", "branch", "branch", "compress", "rewind", "restore", "replace", "replace"),
            *("delete", "rename", "tag", "untag", "send"),
        ]
    ),
    st.integers(0, 1),
    st.integers(0, 5),
)
EDITS = ("rewind", "restore", "replace", "delete")
LINEAR_STEPS = st.tuples(
    st.sampled_from(["append", "append", "rename", "tag", "end", "compress"]), st.integers(0, 5)
)


class Machines:
    """Two stores and the operations on them."""

    def __init__(self, folder: str, names: str) -> None:
        self.stores = [SessionDB(Path(folder, name, "state.db"), durability="normal") for name in names]
        self.clock = 0
        self.edited: set[str] = set()
        """Sessions whose messages were replaced in one of the stores."""
        self.stores[0].create_session("a", "cli", started_at=T)
        self.append(0, "a")
        for at in range(1, len(names)):
            self.send(0, at)

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def now(self) -> float:
        self.clock += 1
        return T + self.clock

    def append(self, at: int, session_id: str) -> None:
        self.stores[at].append_message(session_id, "user", f"said at {self.clock % 3}", timestamp=self.now())

    def send(self, at: int, to: int, order: int = 0) -> Imported:
        """Export everything from store `at` and import it into store `to`. `order` selects the order of the
        sessions."""
        sessions = export(self.stores[at])
        if order:
            Random(order).shuffle(sessions)
        return self.stores[to].import_sessions(sessions, trusted=True)

    def pairs(self) -> list[tuple[int, int]]:
        """Return all pairs of indexes of two different stores."""
        return list(permutations(range(len(self.stores)), 2))

    def do(self, what: str, at: int, which: int) -> None:
        store = self.stores[at]
        ids = sorted(row["id"] for row in store.search_sessions(limit=1000))
        if not ids:
            return
        session_id = ids[which % len(ids)]
        if what in EDITS:
            self.edit(store, session_id, what, which)
            return
        match what:
            case "append":
                self.append(at, session_id)
            case "rename":
                store.set_session_title(session_id, f"title {self.now():.0f}")
            case "tag":
                store.add_tags(session_id, f"tag{which}")
            case "untag":
                store.remove_tags(session_id, f"tag{which}")
            case "compress":
                if store.get_compression_tip(session_id) == session_id:
                    carried = [row["id"] for row in store.get_context(session_id)][-1:]
                    name = f"c{self.clock}{'xyz'[at]}"
                    store.begin_continuation(
                        session_id, "summary", carried, session_id=name, started_at=self.now()
                    )
            case "branch":
                store.branch(session_id, session_id=f"b{self.clock}{'xyz'[at]}", started_at=self.now())
            case "end":
                store.end_session(session_id, "user_exit")
            case "send":
                others = [other for other in range(len(self.stores)) if other != at]
                self.send(at, others[which % len(others)])

    def edit(self, store: SessionDB, session_id: str, what: str, which: int) -> None:
        """Change earlier messages: rewind, restore or replace them."""
        match what:
            case "rewind":
                messages = store.list_recent_user_messages(session_id, limit=1)
                if messages:
                    store.rewind_to_message(session_id, messages[0]["id"])
            case "restore":
                store.restore_rewound(session_id)
            case "replace":
                kept = store.get_messages_as_conversation(session_id)
                text = f"written anew at {self.now():.0f}"
                kept[which % (len(kept) + 1) :] = [{"role": "user", "content": text}] if which % 2 else []
                store.replace_messages(session_id, kept)
                self.edited.add(session_id)
            case "delete" if store.session_count() > 1:
                store.delete_session(session_id)


def export(db: SessionDB) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(session)) for session in db.export_each()]


def uids(db: SessionDB) -> Counter[str]:
    return Counter(row["uid"] for session in db.export_each() for row in session["messages"])


def outline(db: SessionDB) -> dict[str, list[str]]:
    return {session["id"]: [row["uid"][-4:] for row in session["messages"]] for session in db.export_each()}


def check(db: SessionDB) -> None:
    counted = uids(db)
    assert set(counted.values()) <= {1}, "no message is stored twice"
    for session in db.export_each():
        live = [row["id"] for row in db.get_context(session["id"])]
        assert len(live) == len(set(live))
        assert session["message_count"] == len(db.get_messages(session["id"]))
    assert db.verify().ok


@pytest.mark.parametrize("names", ["xy", "xyz"])
@settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=18))
def test_machines_that_exchange_everything_hold_the_same_messages(
    names: str, steps: list[tuple[str, int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(folder, names)
        for what, at, which in steps:
            machines.do(what, at % len(names), which)
        known_uids = set().union(*map(uids, machines.stores))
        for _ in range(len(names) - 1):
            for at, to in machines.pairs():
                machines.send(at, to)
        for store in machines.stores:
            note(str(outline(store)))
            assert set(uids(store)) == known_uids, "nothing is lost"
            check(store)
        for at, to in machines.pairs():
            again, twice = (
                machines.stores[to].import_sessions(export(machines.stores[at]), trusted=True) for _ in "12"
            )
            assert again.messages == 0
            assert (twice.messages, twice.added, twice.updated, twice.branched) == (0, (), (), {})
        machines.close()


@settings(suppress_health_check=list(HealthCheck))
@given(steps=st.lists(EDITING_STEPS, max_size=16), order=st.integers(0, 1000))
def test_an_import_loses_and_duplicates_nothing_in_any_order(
    steps: list[tuple[str, int, int]], order: int
) -> None:
    """Messages move between sessions when a conversation is edited or deleted. So a message is identified by
    its uid."""
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(folder, "xy")
        x, y = machines.stores
        for what, at, which in steps:
            machines.do(what, at, which)
        for store in machines.stores:
            note(str(outline(store)))
            check(store)
        known_uids = set(uids(x)) | set(uids(y))
        rewound = find_rewound(x) | find_rewound(y)
        visible = [(name, set(context) - rewound) for db in (x, y) for name, context in contexts(db).items()]
        machines.send(0, 1, order)
        note(str(outline(y)))
        check(y)
        assert set(uids(y)) >= known_uids, "nothing is lost"
        found = [set(context) for context in contexts(y).values()]
        for name, context in visible:
            assert set().union(*found) >= context, "a message is out of sight"
            if name not in machines.edited:
                assert any(one >= context for one in found), "a conversation is as whole as it was"
        before = export(y)
        again = machines.send(0, 1, order + 1)
        assert (again.messages, again.added, again.branched, again.grown) == (0, (), {}, {})
        if rewound:  # the rewind of a message that is in a branch here may be applied only now
            before = export(y)
            machines.send(0, 1, order + 2)
        assert export(y) == before
        machines.close()


def contexts(db: SessionDB) -> dict[str, list[str]]:
    """Return the uids in the context of each session."""
    by_id: dict[int, str] = dict(read_rows(db, "SELECT id, uid FROM messages"))
    return {row["id"]: [by_id[one["id"]] for one in db.get_context(row["id"])] for row in db.export_each()}


def find_rewound(db: SessionDB) -> set[str]:
    """Return the uids of messages that a rewind removed from a session."""
    rows = read_rows(
        db,
        """SELECT uid FROM messages m WHERE active = 0 OR EXISTS (SELECT 1 FROM carried_context c
            WHERE c.position < 0 AND m.id BETWEEN c.first_message_id AND c.last_message_id)""",
    )
    return {uid for (uid,) in rows}


@settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(st.lists(LINEAR_STEPS, max_size=15), st.lists(st.booleans(), max_size=15))
@example([("append", 0), ("append", 0), ("compress", 0), ("append", 1)], [False, False, True])
def test_a_store_that_only_imports_does_not_depend_on_the_times_of_imports(
    steps: list[tuple[str, int]], sends: list[bool]
) -> None:
    """One store changes, and the other only imports. The result does not depend on when and how often it
    imports."""
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(folder, "xy")
        x, y = machines.stores
        for at, (what, which) in enumerate(steps):
            machines.do(what, 0, which)
            if at < len(sends) and sends[at]:
                machines.send(0, 1)
        machines.send(0, 1)
        assert [strip(one) for one in export(y)] == [strip(one) for one in export(x)]
        older = export(x)
        machines.append(0, "a")
        before = export(x)
        x.import_sessions(older, trusted=True)
        assert export(x) == before
        machines.close()


def strip(session: dict[str, Any]) -> dict[str, Any]:
    """Return an export without values that differ between stores: row ids, and numbers that make titles unique."""
    messages = [{**row, "id": 0} for row in session["messages"]]
    title = (session["title"] or "").split(" (")[0]
    carried = [
        {name: value for name, value in entry.items() if name not in ("first", "last")}
        for entry in session.get("context", [])
    ]
    return {**session, "messages": messages, "title": title, "context": carried}


LETTERS = st.lists(st.sampled_from("abc"), max_size=6)


def transcript(letters: list[str], has_uids: bool) -> Transcript:
    seen: Counter[str] = Counter()
    names = []
    for letter in letters:
        seen[letter] += 1
        names.append(f"{letter}{seen[letter]}")
    return Transcript(names if has_uids else [None] * len(names), [True] * len(names), lambda: letters)


@given(LETTERS, LETTERS, st.booleans(), st.booleans())
@example(["b", "a"], ["a", "b", "a"], True, True)
def test_a_plan_accounts_for_every_message(
    here: list[str], incoming: list[str], uids_here: bool, uids_there: bool
) -> None:
    plan = plan_messages(transcript(here, uids_here), transcript(incoming, uids_there))
    known = [match for match in plan.matches if match is not None]
    assert len(plan.matches) == len(incoming)
    assert len(set(known)) == len(known)
    assert len(plan.missing) + len(known) == len(incoming)
    assert all(incoming[at] == here[match] for at, match in enumerate(plan.matches) if match is not None)
    if plan.action == "append":
        merged = iter(here + [incoming[at] for at in plan.missing])
        assert all(letter in merged for letter in incoming), "in the order of the incoming copy"
    if incoming[: len(here)] == here:
        assert plan.action in ("append", "unchanged")


@given(LETTERS, LETTERS)
def test_a_longer_copy_without_uids_only_adds_its_end(beginning: list[str], end: list[str]) -> None:
    plan = plan_messages(transcript(beginning, True), transcript(beginning + end, False))
    assert plan.missing == list(range(len(beginning), len(beginning + end)))
    back = plan_messages(transcript(beginning + end, False), transcript(beginning, True))
    assert (back.action, back.missing) == ("unchanged", [])


TITLES = [f"plan {number}" for number in range(4)]
TITLE_STEPS = st.tuples(
    st.sampled_from(["append", "rename", "rename", "send", "exchange"]), st.integers(0, 1), st.integers(0, 3)
)


@settings(suppress_health_check=list(HealthCheck))
@given(steps=st.lists(TITLE_STEPS, max_size=14))
@example(steps=[("append", 0, 0), ("append", 1, 0), ("rename", 0, 1), ("exchange", 0, 0)])
@example(steps=[("rename", 0, 0), ("send", 0, 0), ("rename", 0, 1), ("append", 1, 0), ("exchange", 0, 0)])
def test_a_title_that_a_person_gave_survives_every_exchange(steps: list[tuple[str, int, int]]) -> None:
    """In each store the session has the last title that a person set in either store, without an added number."""
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(folder, "xy")
        last: list[str | None] = [None, None]
        for what, at, which in [*steps, ("exchange", 0, 0), ("send", 0, 0), ("send", 1, 0)]:
            if what == "append":
                machines.append(at, "a")
            elif what == "rename":
                with suppress(InvalidTitle):  # a branch has the title
                    machines.stores[at].set_session_title("a", TITLES[which])
                    last[at] = TITLES[which]
            elif what == "send":
                machines.send(at, 1 - at)
            else:  # both export before either imports
                files = [export(store) for store in machines.stores]
                for store, file in zip(machines.stores, reversed(files), strict=True):
                    store.import_sessions(file, trusted=True)
        given_titles = {title for title in last if title is not None}
        for store in machines.stores:
            title = store.get_session_title("a")
            assert title in given_titles or not given_titles, (title, last)
        if len(given_titles) == 1:
            assert len({store.get_session_title("a") for store in machines.stores}) == 1
        for store in machines.stores:
            check(store)
        machines.close()
