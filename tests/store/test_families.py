"""Sessions are created from other sessions: by continuation, branch, reset and delegation."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes_state import SessionDB
from tests.stored_rows import change_each, change_rows, read_value
from tests.tiers import scale_examples


def read_context(db: SessionDB, session_id: str, **how: Any) -> list[Any]:
    return [row["content"] for row in db.get_messages_as_conversation(session_id, **how)]


def own(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id)]


def talk(db: SessionDB, session_id: str, *texts: str) -> list[int]:
    roles = ("user", "assistant")
    return [db.append_message(session_id, roles[at % 2], text) for at, text in enumerate(texts)]


def rows(db: SessionDB) -> int:
    return int(read_value(db, "SELECT count(*) FROM messages"))


@pytest.fixture
def spoken(db: SessionDB) -> tuple[SessionDB, list[int]]:
    db.create_session("a", "cli", model="m", user_id="u", system_prompt="be kind")
    db.set_session_title("a", "my project")
    return db, talk(db, "a", "one", "two", "three", "four")


class TestContinuation:
    def test_a_continuation_ends_the_parent_numbers_the_title_and_copies_no_message(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.begin_continuation("a", "they counted", ids[2:])
        row, parent = db.get_session(child), db.get_session("a")
        assert row is not None
        assert parent is not None
        assert parent["end_reason"] == "compression"
        assert (row["parent_session_id"], row["relation"], row["root_id"]) == ("a", "compression", "a")
        assert (row["title"], parent["title"]) == ("my project #2", "my project")
        assert (row["source"], row["model"], row["user_id"], row["system_prompt"]) == ("cli", "m", "u", None)
        assert read_context(db, child) == ["they counted", "three", "four"]
        assert own(db, child) == ["they counted"]
        assert row["message_count"] == 1
        assert rows(db) == 5
        talk(db, child, "five")
        assert read_context(db, child) == ["they counted", "three", "four", "five"]
        assert read_context(db, child, include_ancestors=True) == [
            "one",
            "two",
            "three",
            "four",
            "they counted",
            "five",
        ]

    def test_protected_messages_may_stand_before_the_summary(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.begin_continuation("a", "sum", ids[3:], head=ids[:1])
        assert read_context(db, child) == ["one", "sum", "four"]

    def test_rows_between_the_carried_ones_are_not_carried(self, db: SessionDB) -> None:
        for name in ("a", "b"):
            db.create_session(name, "cli")
        ids = []
        for at in range(6):
            ids.append(db.append_message("a", "user", f"a{at}"))
            db.append_message("b", "user", f"b{at}")
        child = db.begin_continuation("a", "sum", ids[1:5])
        assert read_context(db, child) == ["sum", "a1", "a2", "a3", "a4"]
        assert read_context(db, db.branch("b")) == [f"b{at}" for at in range(6)]

    def test_the_conversation_is_one_row_with_the_tip_in_it(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.begin_continuation("a", "sum", ids)
        [row] = db.list_sessions_rich()
        assert (row["id"], row["_lineage_root_id"], row["title"]) == (child, "a", "my project #2")
        for name in ("a", child, child[:-2], "my project", "my project #2"):
            assert db.tip(name) == child
        assert db.tip("nobody") is None

    def test_a_second_compression_of_the_same_session_gets_the_existing_continuation(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.begin_continuation("a", "sum", ids)
        with pytest.raises(errors.AlreadyContinued, match=child):
            db.begin_continuation("a", "sum", ids)
        db.reopen_session("a")
        with pytest.raises(errors.AlreadyContinued):
            db.begin_continuation("a", "sum", ids)
        assert db.session_count() == 2

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"parent": "nobody"}, "does not exist"),
            ({"summary": "  "}, "must not be empty"),
            ({"summary": None}, "required"),
            ({"carried": [99]}, "not in the context"),
            ({"carried": [1, 1]}, "twice"),
            ({"carried": [1], "head": [1]}, "the same message"),
            ({"session_id": "a"}, "already exists"),
            ({"title": "x" * 101}, "too long"),
            ({"lease_epoch": 7}, "taken over"),
        ],
    )
    def test_a_refused_operation_changes_nothing(
        self, spoken: tuple[SessionDB, list[int]], arguments: dict[str, Any], told: str
    ) -> None:
        db, _ids = spoken
        before = (db.get_session("a"), read_context(db, "a"), db.session_count(), rows(db))
        with pytest.raises(errors.HermesError, match=told):
            db.begin_continuation(**{"parent": "a", "summary": "sum", **arguments})
        assert (db.get_session("a"), read_context(db, "a"), db.session_count(), rows(db)) == before

    def test_twenty_rounds_store_each_message_once_and_twelve_oks_stay_twelve(self, db: SessionDB) -> None:
        db.create_session("start", "cli")
        db.set_session_title("start", "long one")
        created, oks = 0, 0
        for round_ in range(20):
            at = db.tip("long one")
            assert at is not None
            context = [db.append_message(at, "user", "ok" if round_ < 12 else f"more {round_}")]
            context.append(db.append_message(at, "assistant", f"answer {round_}"))
            created += 2
            oks += round_ < 12
            db.begin_continuation(at, f"summary {round_}", context)
            created += 1
        assert rows(db) == created == 60
        tip = db.tip("start")
        assert tip is not None
        assert read_context(db, tip, include_ancestors=True).count("ok") == oks == 12
        assert read_context(db, tip) == ["summary 19", "more 19", "answer 19"]
        assert db.get_session_title(tip) == "long one #21"
        assert len(db.list_sessions_rich()) == 1

    def test_deleting_the_origin_gives_the_carried_messages_to_the_survivor(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.begin_continuation("a", "sum", ids[2:])
        branch = db.branch(child, ids[3])
        before = (read_context(db, child), read_context(db, branch))
        assert db.delete_session("a")
        assert (read_context(db, child), read_context(db, branch)) == before
        assert own(db, child) == ["three", "four", "sum"]
        assert [hit["session_id"] for hit in db.search_messages("three")] == [child]
        assert db.delete_session(child)
        assert read_context(db, branch) == before[1]

    def test_clearing_the_origin_gives_the_carried_messages_to_the_survivor(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.begin_continuation("a", "sum", ids[2:])
        db.clear_messages("a")
        assert read_context(db, child) == ["sum", "three", "four"]
        assert own(db, "a") == []


class TestBranch:
    def test_a_branch_is_a_separate_conversation_up_to_a_message(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.branch("a", ids[1])
        row, parent = db.get_session(child), db.get_session("a")
        assert row is not None
        assert parent is not None
        assert (row["relation"], row["root_id"], row["listed"], row["message_count"]) == (
            "branch",
            child,
            1,
            0,
        )
        assert (parent["end_reason"], row["title"]) == ("branched", "my project (2)")
        assert row["system_prompt"] == "be kind"
        assert read_context(db, child) == ["one", "two"]
        assert rows(db) == 4
        assert {one["id"] for one in db.list_sessions_rich()} == {"a", child}

    def test_a_later_rewind_of_the_parent_does_not_change_a_branch(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, ids = spoken
        child = db.branch("a", end_parent=False)
        db.rewind_to_message("a", ids[0])
        assert read_context(db, "a") == []
        assert read_context(db, child) == ["one", "two", "three", "four"]
        db.delete_session("a")
        assert read_context(db, child) == ["one", "two", "three", "four"]

    def test_a_message_that_is_not_in_the_context_is_refused(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, _ids = spoken
        with pytest.raises(ValueError, match="not in the context"):
            db.branch("a", 99)
        assert db.session_count() == 1


class TestReset:
    def test_a_reset_starts_an_empty_session_and_moves_the_chats(
        self, spoken: tuple[SessionDB, list[int]]
    ) -> None:
        db, _ids = spoken
        db.routing.route("k", "telegram", "dm", "1", "", "", "a")
        fresh = db.reset("a")
        row, parent = db.get_session(fresh), db.get_session("a")
        assert row is not None
        assert parent is not None
        assert (row["relation"], row["title"], read_context(db, fresh)) == ("reset", None, [])
        assert parent["end_reason"] == "session_reset"
        assert [route.session_id for route in db.routing.list_routes()] == [fresh]
        assert db.undo_reset(fresh) == "a"
        assert [route.session_id for route in db.routing.list_routes()] == ["a"]
        back = db.get_session("a")
        assert back is not None
        assert back["ended_at"] is None

    def test_the_title_of_an_undone_reset_is_free(self, spoken: tuple[SessionDB, list[int]]) -> None:
        db, _ids = spoken
        fresh = db.reset("a", title="Rome")
        lease = db.leases.acquire(fresh, "terminal")
        db.leases.take_over(fresh, "editor")
        with pytest.raises(errors.LeaseLost):
            db.undo_reset(fresh, lease_epoch=lease.epoch)
        assert db.get_session_title(fresh) == "Rome"
        db.undo_reset(fresh)
        assert db.get_session_title(db.reset("a", title="Rome")) == "Rome"

    def test_a_reset_cannot_be_undone_after_a_message(self, spoken: tuple[SessionDB, list[int]]) -> None:
        db, _ids = spoken
        fresh = db.reset("a", reason="daily")
        talk(db, fresh, "hello")
        with pytest.raises(ValueError, match="already has new messages"):
            db.undo_reset(fresh)
        with pytest.raises(ValueError, match="not started by a reset that can still be undone"):
            db.undo_reset("a")


def test_a_delegate_is_in_no_list_and_leaves_its_parent_open(spoken: tuple[SessionDB, list[int]]) -> None:
    db, _ids = spoken
    child = db.delegate("a", session_id="task")
    row, parent = db.get_session(child), db.get_session("a")
    assert row is not None
    assert parent is not None
    assert (row["relation"], row["kind"], parent["ended_at"]) == ("delegate", "child", None)
    assert [one["id"] for one in db.list_sessions_rich()] == ["a"]
    assert db.tip("a") == "a"


def test_the_family_is_a_tree_from_any_of_its_members(spoken: tuple[SessionDB, list[int]]) -> None:
    db, ids = spoken
    task = db.delegate("a")
    branch = db.branch("a", ids[0], end_parent=False)
    child = db.begin_continuation("a", "sum", ids)
    fresh = db.reset(child)
    for name in ("a", task, branch, child, fresh):
        tree = db.family(name)
        assert tree is not None
        found = {(depth, one.relation, one.id) for depth, one in tree.walk()}
        assert found == {
            (0, None, "a"),
            (1, "delegate", task),
            (1, "branch", branch),
            (1, "compression", child),
            (2, "reset", fresh),
        }
    assert db.family("nobody") is None


def test_a_chain_of_thousands_is_a_tree_too(db: SessionDB) -> None:
    change_each(
        db,
        "INSERT INTO sessions (id, source, parent_session_id, started_at) VALUES (?, 'cli', ?, ?)",
        ((f"s{at}", f"s{at - 1}" if at else None, float(at)) for at in range(5000)),
    )
    tree = db.family("s4999")
    assert tree is not None
    assert max(depth for depth, _one in tree.walk()) == 4999


@settings(max_examples=scale_examples(160), deadline=None)
@given(st.lists(st.sampled_from(["say", "compress", "branch", "back", "reset"]), max_size=14), st.randoms())
def test_after_any_operations_every_message_is_stored_once_and_every_context_is_kept(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], chance: random.Random
) -> None:
    """The store is compared with a simple model that keeps the context of each session."""
    with SessionDB(db_path=tmp_path_factory.mktemp("family") / "state.db") as db:
        db.create_session("s0", "cli")
        contexts: dict[str, list[tuple[int, str]]] = {"s0": []}
        ended: set[str] = set()
        shortened: set[str] = set()
        created = 0
        for step in steps:
            at, new = chance.choice(list(contexts)), f"s{len(contexts)}"
            live = contexts[at]
            if step == "say":
                text = f"m{created}"
                live.append((db.append_message(at, "user", text), text))
                created += 1
            elif step == "compress" and at not in ended:
                kept = sorted(chance.sample(range(len(live)), chance.randint(0, len(live))))
                cut = chance.randint(0, len(kept))
                head, tail = [live[k] for k in kept[:cut]], [live[k] for k in kept[cut:]]
                child = db.begin_continuation(
                    at, f"sum{created}", [i for i, _ in tail], head=[i for i, _ in head], session_id=new
                )
                summary = db.get_messages(child)[0]
                contexts[child] = [*head, (summary["id"], f"sum{created}"), *tail]
                created += 1
                ended.add(at)
            elif step == "branch":
                upto = chance.randint(1, len(live)) if live else 0
                child = db.branch(at, live[upto - 1][0] if upto else None, end_parent=False, session_id=new)
                contexts[child] = live[:upto] if upto else []
            elif step == "back":
                people = [k for k, (_i, text) in enumerate(live) if text.startswith("m")]
                if people:
                    where = chance.choice(people)
                    db.rewind_to_message(at, live[where][0])
                    if at in shortened or chance.random() < 0.5:
                        shortened.add(at)
                        del live[where:]
                    else:
                        assert db.restore_rewound(at) == len(live) - where
            elif step == "reset":
                contexts[db.reset(at, session_id=new)] = []
        for session_id, live in contexts.items():
            assert read_context(db, session_id) == [text for _i, text in live]
        assert rows(db) == created


def compress_until_killed(path: Path, done: Any) -> None:
    with SessionDB(db_path=path) as db:
        at = db.tip("start")
        while True:
            done.release()
            assert at is not None
            message_id = db.append_message(at, "user", "more")
            try:
                at = db.begin_continuation(at, "sum", [message_id])
            except errors.AlreadyContinued:
                at = db.tip("start")


@pytest.mark.full
def test_a_kill_at_any_point_or_two_processes_leave_a_valid_family(home: Path) -> None:
    path = home / "state.db"
    with SessionDB(db_path=path) as db:
        db.create_session("start", "cli")
        db.set_session_title("start", "t")
    context = multiprocessing.get_context("spawn")
    for _round in range(4):
        steps = [context.Semaphore(0) for _ in range(2)]
        workers = [context.Process(target=compress_until_killed, args=(path, done)) for done in steps]
        for worker in workers:
            worker.start()
        for done in steps:
            for _step in range(3):
                assert done.acquire(timeout=30)
        for worker in workers:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
    with SessionDB(db_path=path) as db:
        tree = db.family("start")
        assert tree is not None
        chain = [one for _depth, one in tree.walk()]
        for number, session in enumerate(chain, start=1):
            assert len(session.children) <= 1
            assert (session.end_reason == "compression") == bool(session.children)
            assert session.title == ("t" if number == 1 else f"t #{number}")
            if number > 1:
                assert read_context(db, session.id)[:2] == ["sum", "more"]
        assert len(chain) > 4
        assert db.verify().ok


def test_the_continuation_of_a_subagent_is_a_subagent_and_its_branch_is_not(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.delegate("a", session_id="helper")
    db.branch("helper", session_id="branch", end_parent=False)
    db.begin_continuation("helper", "so far", session_id="more")

    def kinds() -> list[str]:
        return [(db.get_session(name) or {})["kind"] for name in ("helper", "more", "branch")]

    assert kinds() == ["child", "child", "chat"]
    # as another program may do; all derived columns are then computed again
    change_rows(db, "UPDATE sessions SET source = source")
    db.list_sessions_rich()
    assert kinds() == ["child", "child", "chat"]
