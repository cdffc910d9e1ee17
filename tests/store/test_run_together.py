"""Calls that run together share a transaction, and otherwise behave as if each ran by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.gateway.local_gateway import full_disk
from tests.stored_rows import hold_transaction
from tests.survival.processes import impatient

ANN = Principal("telegram", "ann", "1")


def append(db: SessionDB, session_id: str, text: str) -> Callable[[], int]:
    return lambda: db.append_message(session_id, "user", text)


def texts(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id)]


def test_the_writes_of_several_calls_are_one_commit(db: SessionDB) -> None:
    db.create_session("a", "cli")
    seen: list[list[Any]] = []
    with SessionDB(db_path=db.db_path) as other:
        outcomes = db.run_together(
            [
                append(db, "a", "one"),
                lambda: seen.append(texts(other, "a")),
                append(db, "a", "two"),
                lambda: seen.append(texts(other, "a")),
            ]
        )
        assert seen == [[], []]
        assert texts(other, "a") == ["one", "two"]
    assert [outcome.has_written for outcome in outcomes] == [True, False, True, False]


def test_an_error_undoes_only_the_write_that_failed(db: SessionDB) -> None:
    db.create_session("a", "cli")

    def write_twice() -> None:
        db.append_message("a", "user", "kept")
        db.append_message("missing", "user", "refused")

    outcomes = db.run_together([append(db, "a", "before"), write_twice, append(db, "a", "after")])
    assert isinstance(outcomes[1].problem, errors.UnknownSession)
    assert outcomes[1].has_written
    assert texts(db, "a") == ["before", "kept", "after"]


def test_a_call_sees_its_own_writes(db: SessionDB) -> None:
    def create_and_count() -> int:
        own = db.scoped(ANN)
        session = own.create_session()
        own.append_message(session, "user", "hello")
        return len(own.get_messages(session))

    outcomes = db.run_together([create_and_count, create_and_count])
    assert [outcome.result for outcome in outcomes] == [1, 1]


def test_a_thread_that_writes_meanwhile_waits_and_loses_nothing(db: SessionDB) -> None:
    db.create_session("a", "cli")
    writers = [threading.Thread(target=append(db, "a", f"other {number}")) for number in range(4)]

    def start_writers() -> None:
        db.append_message("a", "user", "mine")
        for writer in writers:
            writer.start()

    db.run_together([start_writers, append(db, "a", "mine too")])
    for writer in writers:
        writer.join()
    assert sorted(texts(db, "a")) == ["mine", "mine too", *(f"other {number}" for number in range(4))]
    assert texts(db, "a")[:2] == ["mine", "mine too"]


def test_if_the_commit_fails_each_call_runs_by_itself_and_is_spooled(home: Path) -> None:
    with SessionDB(spool=True) as db:
        db.create_session("a", "cli")
        with full_disk():
            outcomes = db.run_together([append(db, "a", "one"), append(db, "a", "two")])
        problems = [outcome.problem for outcome in outcomes]
        assert all(isinstance(problem, errors.StoreFull) for problem in problems)
        assert db.run_together([append(db, "a", "three")])[0].problem is None
        assert texts(db, "a") == ["one", "two", "three"]


@pytest.mark.parametrize("has_more", [True, False])
def test_if_a_later_commit_fails_nothing_that_is_committed_is_repeated(db: SessionDB, has_more: bool) -> None:
    """The second call commits its first message, because it reads in between. The disk is full after that."""
    for name in "abc":
        db.create_session(name, "cli")
    disk = full_disk()

    def write_read_write() -> None:
        db.append_message("b", "user", "first")
        db.get_messages("b")
        disk.__enter__()
        db.append_message("b", "user", "second")

    try:
        calls = [append(db, "a", "one"), write_read_write, append(db, "c", "three")]
        outcomes = db.run_together(calls if has_more else calls[:2])
    finally:
        disk.__exit__(None, None, None)
    assert outcomes[0].problem is None
    assert isinstance(outcomes[1].problem, errors.StoreFull)
    assert (texts(db, "a"), texts(db, "b"), texts(db, "c")) == (["one"], ["first"], [])


def test_two_changes_of_a_chat_in_one_transaction_keep_each_other(db: SessionDB) -> None:
    db.create_session("s", "telegram")
    db.routing.route("k", "telegram", "dm", "1", "", "", "s")
    outcomes = db.run_together(
        [
            lambda: db.routing.change_entry("k", lambda entry: {**entry, "one": 1}),
            lambda: db.routing.change_entry("k", lambda entry: {**entry, "two": 2}),
        ]
    )
    assert [outcome.problem for outcome in outcomes] == [None, None]
    route = db.routing.get("k")
    assert route is not None
    assert route.entry == {"one": 1, "two": 2}


def test_a_locked_store_fails_all_calls_after_one_wait(db: SessionDB) -> None:
    db.create_session("a", "cli")
    with SessionDB(db_path=db.db_path) as waiting, hold_transaction(db):
        impatient(waiting, 0.2)
        outcomes = waiting.run_together([append(waiting, "a", str(number)) for number in range(5)])
    assert len(outcomes) == 5
    assert all(isinstance(outcome.problem, errors.StoreBusy) for outcome in outcomes)
    assert texts(db, "a") == []


def test_what_ran_together_survives_a_kill(home: Path) -> None:
    program = (
        "import os, signal; from hermes_state import SessionDB\n"
        "db = SessionDB(); db.create_session('a', 'cli')\n"
        "db.run_together([lambda n=n: db.append_message('a', 'user', str(n)) for n in range(20)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", program], check=False, env={**os.environ})
    assert killed.returncode == -signal.SIGKILL
    with SessionDB() as db:
        assert texts(db, "a") == [str(number) for number in range(20)]


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from("ab")),
        st.tuples(st.just("append"), st.sampled_from("abc")),
        st.tuples(st.just("append and read"), st.sampled_from("ab")),
        st.tuples(st.just("title"), st.sampled_from("ab")),
    ),
    max_size=12,
)


@given(CALLS)
def test_calls_that_run_together_have_the_results_of_single_calls(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, str]]
) -> None:
    def make_call(db: SessionDB, kind: str, name: str, number: int) -> Callable[[], Any]:
        def run() -> Any:
            if kind == "create":
                return db.create_session(name, "cli")
            if kind == "title":
                return db.set_session_title(name, f"title of {name}")
            db.append_message(name, "user", str(number))
            return texts(db, name)[-1] if kind == "append and read" else None

        return run

    folder = tmp_path_factory.mktemp("stores")
    with SessionDB(db_path=folder / "one.db") as alone, SessionDB(db_path=folder / "two.db") as together:
        expected = []
        for number, (kind, name) in enumerate(calls):
            try:
                expected.append(make_call(alone, kind, name, number)())
            except errors.HermesError as problem:
                expected.append(type(problem))
        outcomes = together.run_together(
            [make_call(together, kind, name, number) for number, (kind, name) in enumerate(calls)]
        )
        assert [
            outcome.result if outcome.problem is None else type(outcome.problem) for outcome in outcomes
        ] == expected
        for name in "abc":
            assert texts(together, name) == texts(alone, name)
            assert together.get_session_title(name) == alone.get_session_title(name)
