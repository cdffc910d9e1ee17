"""Messages that the store cannot accept are spooled. The caller gets the error at once. The messages are
later stored once and in order.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.store.people import Principal
from hermes.store.spool import spool_writer as patience
from hermes_state import SessionDB
from tests.stored_rows import read_dicts
from tests.survival.processes import LONG, Worker, impatient
from tests.tiers import scale_examples

SMALL = 300_000
PAGES = "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'internal'"
ROUNDS = 30 if LONG else 3


@pytest.fixture
def spooling(home: Path) -> Iterator[SessionDB]:
    """Open a spooling store with one session, one message and a short time limit for locks."""
    with SessionDB(spool=True) as db:
        impatient(db, 0.05)
        db.create_session("s", "cli")
        db.append_message("s", "user", "before")
        yield db


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep another connection in a transaction while the block runs."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def kept(db: SessionDB, session: str, *texts: Any, **more: Any) -> list[Path]:
    """Append messages while the store is locked. Check that each is refused and spooled. Return the spool
    files."""
    files = []
    with locked(db.db_path):
        for text in texts:
            with pytest.raises(errors.StoreBusy) as caught:
                db.append_message(session, "user", text, **more)
            assert caught.value.spooled is not None
            files.append(caught.value.spooled)
    return files


def contents(db: SessionDB, session: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session)]


def assert_stored_once(path: Path, session: str, texts: list[str]) -> None:
    with SessionDB(path) as db:
        assert contents(db, session) == texts
        for text in texts:
            assert len(db.search_messages(f'"{text.split()[0]}"')) == 1
        row = db.get_session(session)
        assert row is not None
        assert row["message_count"] == len(texts)
        assert db.spool_status() == (0, 0, None, 0, ())
        report = db.verify()
        assert report.ok, report.lines()


# --- the three reasons why a store cannot take a write


def test_no_room(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        worker.ask("open_store", path=str(path), spool=True)
        worker.ask("append", session="s", texts=["word0 before"])
        worker.ask("limit_files", size=SMALL)
        texts, result = ["word0 before"], ["stored", "", None]
        while result[0] == "stored":
            texts.append(f"word{len(texts)} " + "x" * 3000)
            (result,) = worker.ask("append_or_spool", session="s", texts=[texts[-1]])
        texts += [f"word{len(texts) + n} while full" for n in range(5)]
        for kind, message, where in [result, *worker.ask("append_or_spool", session="s", texts=texts[-5:])]:
            assert kind in ("StoreFull", "StoreFailed")
            assert message.endswith(
                f"It is kept in {where} and will be stored when the store is available again"
            )
            assert Path(where).parent == home / "spool"
        stored = worker.ask("contents", session="s")
        assert stored == texts[: len(stored)]
        assert len(stored) == len(texts) - 6
        worker.ask("limit_files", size=None)
        texts.append(f"word{len(texts)} room again")
        worker.ask("append_only", session="s", texts=texts[-1:])
        assert worker.ask("contents", session="s") == texts
    assert_stored_once(path, "s", texts)


def test_a_lock_that_is_not_released(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker, Worker() as sibling:
        worker.ask("open_store", path=str(path), spool=True)
        worker.ask("append", session="s", texts=["one"])
        worker.ask("be_impatient", seconds=0.1)
        sibling.start("hold_write_lock", path=str(path), seconds=60)
        sibling.wait_for("held")
        for kind, _message, where in worker.ask("append_or_spool", session="s", texts=["two", "three"]):
            assert kind == "StoreBusy"
            assert where is not None
        sibling.kill()
        worker.ask("append_only", session="s", texts=["four"])
        assert worker.ask("contents", session="s") == ["one", "two", "three", "four"]
    assert_stored_once(path, "s", ["one", "two", "three", "four"])


def test_damage_found_while_writing(home: Path) -> None:
    path, before = home / "state.db", [f"word{n} " + "x" * 500 for n in range(60)]
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        for text in before:
            db.append_message("s", "user", text)
    connection = apsw.Connection(str(path))
    page: Any = connection.execute(PAGES).fetchall()[0][0]
    connection.close()
    for ending in ("-wal", "-shm"):
        assert not Path(f"{path}{ending}").exists()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\0" * 4096)
    with SessionDB(path, spool=True) as db:
        for text in ("while1 damaged", "while2 damaged"):
            with pytest.raises(errors.StoreDamaged, match="hermes sessions repair") as caught:
                db.append_message("s", "user", text)
            assert caught.value.spooled is not None
            assert str(caught.value).count("It is kept in") == 1
        db.repair()
        assert contents(db, "s") == [*before, "while1 damaged", "while2 damaged"]
    assert_stored_once(path, "s", [*before, "while1 damaged", "while2 damaged"])


# --- the error for the caller


def test_nothing_is_spooled_by_default(db: SessionDB, home: Path) -> None:
    db.create_session("s", "cli")
    impatient(db, 0.05)
    with locked(db.db_path), pytest.raises(errors.StoreBusy) as caught:
        db.append_message("s", "user", "tried again by its caller")
    assert caught.value.spooled is None
    assert not (home / "spool").exists()
    assert db.spool_status().entries == 0


def test_a_bad_value_is_refused_at_once_and_not_spooled(spooling: SessionDB) -> None:
    with locked(spooling.db_path), pytest.raises(errors.InvalidArgument) as caught:
        spooling.append_message("s", "user", "hello", token_count="many")  # type: ignore[arg-type]
    assert caught.value.spooled is None
    assert spooling.spool_status().entries == 0


def test_the_error_says_if_the_message_could_not_be_spooled_either(spooling: SessionDB, home: Path) -> None:
    (home / "spool").write_text("in the way")
    with locked(spooling.db_path), pytest.raises(errors.StoreBusy, match="It was not saved") as caught:
        spooling.append_message("s", "user", "lost, and told so")
    assert caught.value.spooled is None
    (home / "spool").unlink()
    spooling.append_message("s", "user", "after")
    assert contents(spooling, "s") == ["before", "after"]


def test_no_room_for_the_spool_leaves_no_part_of_a_line(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker, Worker() as sibling:
        worker.ask("open_store", path=str(path), spool=True)
        worker.ask("append", session="s", texts=["one"])
        worker.ask("be_impatient", seconds=0.1)
        sibling.start("hold_write_lock", path=str(path), seconds=60)
        sibling.wait_for("held")
        worker.ask("limit_files", size=20_000)
        result = worker.ask("append_or_spool", session="s", texts=["two", "x" * 30_000, "three"])
        assert [where is not None for _kind, _message, where in result] == [True, False, True]
        assert "It was not saved" in result[1][1]
        sibling.kill()
        worker.ask("limit_files", size=None)
        worker.ask("append_only", session="s", texts=["four"])
    assert_stored_once(path, "s", ["one", "two", "three", "four"])


def test_the_status_shows_spooled_messages(spooling: SessionDB) -> None:
    started = time.time()
    files = kept(spooling, "s", "one", "two")
    status = spooling.spool_status()
    assert status.entries == 2
    assert status.files == (files[0],)
    assert status.bytes == files[0].stat().st_size
    assert status.oldest is not None
    assert started <= status.oldest <= time.time()


def test_files_are_private_whatever_the_umask(spooling: SessionDB, home: Path) -> None:
    os.umask(0)
    (file,) = kept(spooling, "s", "secret")
    assert file.stat().st_mode & 0o777 == 0o600
    assert (home / "spool").stat().st_mode & 0o777 == 0o700
    spooling.append_message("s", "user", "stored")
    assert {entry.name: entry.stat().st_mode & 0o777 for entry in (home / "spool").iterdir()} == {
        "lock": 0o600
    }


# --- order and replay


def test_a_session_that_could_not_be_made_is_made_before_its_messages(spooling: SessionDB) -> None:
    with locked(spooling.db_path):
        with pytest.raises(errors.StoreBusy) as caught:
            spooling.create_session("new", "telegram", model="m", model_config={"t": 1})
        assert caught.value.spooled is not None
    kept(spooling, "new", "hello")
    with SessionDB(spooling.db_path) as other:  # any writing handle stores spooled messages
        row = other.get_session("new")
        assert row is not None
        assert (row["source"], row["model"], row["model_config"]) == ("telegram", "m", '{"t":1}')
        assert contents(other, "new") == ["hello"]
    assert spooling.spool_status().entries == 0
    spooling.append_message("new", "assistant", "hi")
    assert contents(spooling, "new") == ["hello", "hi"]


def test_a_session_that_is_there_needs_no_write(spooling: SessionDB) -> None:
    with locked(spooling.db_path):
        assert spooling.ensure_session("s", "cli") == "s"
    assert spooling.spool_status().entries == 0


def test_a_reader_stores_nothing(spooling: SessionDB) -> None:
    kept(spooling, "s", "waits")
    with SessionDB(spooling.db_path, read_only=True, spool=True) as reader:
        assert contents(reader, "s") == ["before"]
        assert reader.spool_status().entries == 1


@pytest.mark.parametrize("verb", ["replace", "clear", "end", "delete", "title"])
def test_later_writes_come_after_spooled_messages(spooling: SessionDB, verb: str) -> None:
    kept(spooling, "s", "waits")
    if verb == "replace":
        spooling.replace_messages("s", [{"role": "user", "content": "only this"}])
        assert contents(spooling, "s") == ["only this"]
    elif verb == "clear":
        spooling.clear_messages("s")
        assert contents(spooling, "s") == []
    elif verb == "delete":
        spooling.delete_session("s")
        assert spooling.get_session("s") is None
    else:
        if verb == "end":
            spooling.end_session("s", "done")
        else:
            spooling.set_session_title("s", "Title")
        assert contents(spooling, "s") == ["before", "waits"]
    assert spooling.spool_status() == (0, 0, None, 0, ())


def test_no_write_of_a_handle_overtakes_its_spooled_messages(
    spooling: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store can be written again, but another process is storing the spool. The next message is therefore
    spooled too, behind the first one."""
    kept(spooling, "s", "first")
    lock = os.open(spooling.db_path.parent / "spool" / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another program is storing the spool
        monkeypatch.setattr(patience, "WAIT_S", 0.05)
        with pytest.raises(errors.StoreBusy) as caught:
            spooling.append_message("s", "user", "second")
        assert caught.value.spooled is not None
    finally:
        os.close(lock)
    spooling.append_message("s", "user", "third")
    assert contents(spooling, "s") == ["before", "first", "second", "third"]


def test_the_message_is_the_one_that_was_accepted(spooling: SessionDB) -> None:
    began = time.time()
    kept(spooling, "s", "dated", timestamp=1234.5)
    kept(spooling, "s", "now", platform_message_id=77)
    ended = time.time()
    spooling.append_message("s", "user", "later")
    dated, now = spooling.get_messages("s")[1:3]
    assert dated["timestamp"] == 1234.5
    assert began <= now["timestamp"] <= ended
    assert now["platform_message_id"] == "77"
    assert len(now["uid"]) == 32


def test_a_message_stored_before_a_crash_is_not_stored_again(spooling: SessionDB, home: Path) -> None:
    (file, *_) = kept(spooling, "s", "one", "two")
    copy = file.read_bytes()
    spooling.append_message("s", "user", "three")
    assert not file.exists()
    file.write_bytes(copy)  # as if killed after the commit and before the removal of the file
    with SessionDB() as db:
        assert contents(db, "s") == ["before", "one", "two", "three"]
    assert not file.exists()


def test_two_stores_in_one_folder_keep_apart(spooling: SessionDB, home: Path) -> None:
    (file,) = kept(spooling, "s", "for state.db")
    with SessionDB(home / "other.db", spool=True) as other:
        other.create_session("s", "cli")
        assert contents(other, "s") == []
        assert other.spool_status().entries == 0
    assert file.exists()
    spooling.append_message("s", "user", "after")
    assert contents(spooling, "s") == ["before", "for state.db", "after"]


# --- messages that can never be stored


def test_a_message_that_can_never_be_stored_is_set_aside(
    spooling: SessionDB, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spooling.create_session("gone", "cli")
    kept(spooling, "s", "one")
    kept(spooling, "gone", "for nobody")
    kept(spooling, "s", "two", lease_epoch=7)
    (file,) = kept(spooling, "s", "three")
    connection = apsw.Connection(str(spooling.db_path))
    connection.execute("DELETE FROM sessions WHERE id = 'gone'")
    connection.close()
    with caplog.at_level(logging.WARNING, "hermes"):
        spooling.append_message("s", "user", "four")
    assert contents(spooling, "s") == ["before", "one", "three", "four"]
    refused = home / "spool" / "refused" / file.name
    data = [json.loads(line) for line in refused.read_text().splitlines()]
    assert [line["arguments"]["content"] for line in data] == ["for nobody", "two"]
    assert "does not exist" in data[0]["reason"]
    assert "taken over" in data[1]["reason"]
    assert len([line for line in caplog.messages if str(refused) in line]) == 2
    assert refused.stat().st_mode & 0o777 == 0o600
    assert spooling.spool_status() == (0, 0, None, 2, ())


def test_a_line_that_a_crash_cut_off_is_left_for_a_person(
    spooling: SessionDB, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (file, _) = kept(spooling, "s", "whole", "cut")
    data = file.read_bytes()
    file.write_bytes(data[:-20])
    with caplog.at_level(logging.WARNING, "hermes"), SessionDB() as db:
        assert contents(db, "s") == ["before", "whole"]
        assert db.spool_status().entries == 0
    assert file.with_name(file.name + ".torn").read_bytes() == data[:-20]
    assert [line for line in caplog.messages if ".torn" in line]
    spooling.append_message("s", "user", "goes on")
    kept(spooling, "s", "again")
    SessionDB().close()
    assert contents(spooling, "s") == ["before", "whole", "goes on", "again"]


@pytest.mark.parametrize(
    "rubbish", [b"", b"\0" * 4096, b"[]\n", b"{}\n", b'{"verb":1,"at":"x"}\n', b"\xff\r\n"]
)
def test_an_invalid_spool_file_is_never_fatal(spooling: SessionDB, home: Path, rubbish: bytes) -> None:
    kept(spooling, "s", "kept")
    (home / "spool" / "0000000000000001_1_x.jsonl").write_bytes(rubbish)
    with SessionDB() as db:
        assert contents(db, "s") == ["before", "kept"]


def test_an_entry_of_a_later_version_is_set_aside(spooling: SessionDB, home: Path) -> None:
    (file,) = kept(spooling, "s", "kept")
    line = json.loads(file.read_bytes())
    file.write_text(json.dumps(line | {"verb": "paint", "uid": "00"}) + "\n" + json.dumps(line) + "\n")
    with SessionDB() as db:
        assert contents(db, "s") == ["before", "kept"]
        assert db.spool_status().refused == 1


def test_purge_leaves_no_byte_in_the_spool(spooling: SessionDB, home: Path) -> None:
    spooling.create_session("secret", "cli")
    kept(spooling, "secret", "hush hush")
    spooling.append_message("s", "user", "stored")
    kept(spooling, "secret", "hush again")
    kept(spooling, "s", "stays")
    (home / "spool" / "refused").mkdir()
    line = next(iter(spooling.spool_status().files)).read_bytes().splitlines(keepends=True)[0]
    (home / "spool" / "refused" / "1_1_x.jsonl").write_bytes(line)
    (home / "spool" / "1_1_y.jsonl.torn").write_bytes(line + line[:50])
    with SessionDB() as other:
        kept(spooling, "secret", "hush thrice")
        kept(spooling, "s", "stays too")
        other.delete_session("secret", purge=True)
    for left in (home / "spool").rglob("*"):
        if left.is_file():
            assert b"hush" not in left.read_bytes(), left
    spooling.append_message("s", "user", "end")
    assert contents(spooling, "s") == ["before", "stored", "stays", "stays too", "end"]


# --- every value, with and without the spool


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.just(datetime(2025, 3, 5, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(
    max_examples=scale_examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(content=values, reasoning=st.none() | st.text(st.characters(codec=None)), details=values)
def test_a_message_through_the_spool_is_the_same_row(
    spooling: SessionDB, content: Any, reasoning: str | None, details: Any
) -> None:
    impatient(spooling, 0.0)
    more = {"reasoning": reasoning, "reasoning_details": details, "timestamp": 5.0}
    kept(spooling, "s", content, **more)
    impatient(spooling, 5.0)
    spooling.append_message("s", "user", content, **more)
    columns = "SELECT * FROM messages WHERE session_id = 's' ORDER BY id DESC LIMIT 2"
    direct, late = (
        {name: value for name, value in row.items() if name not in ("id", "uid")}
        for row in read_dicts(spooling, columns)
    )
    assert late == direct


# --- many processes, killed at any time


def test_threads_share_the_spool(spooling: SessionDB) -> None:
    sessions = [f"t{n}" for n in range(6)]
    for session in sessions:
        spooling.create_session(session, "cli")
    wrong: list[str] = []

    def write(session: str) -> None:
        for n in range(8):
            try:
                spooling.append_message(session, "user", f"{session}n{n}")
            except errors.StoreBusy as problem:
                if problem.spooled is None:
                    wrong.append(str(problem))

    threads = [threading.Thread(target=write, args=(session,)) for session in sessions]
    with locked(spooling.db_path):
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    spooling.append_message("s", "user", "after")
    assert wrong == []
    for session in sessions:
        assert contents(spooling, session) == [f"{session}n{n}" for n in range(8)]


@pytest.mark.full
def test_killed_at_any_moment_everything_accepted_is_stored_once_and_in_order(home: Path) -> None:
    """Processes accept messages while another process takes and releases the lock and further processes open
    the store. All of these processes are killed."""
    path, rng = home / "state.db", random.Random(5)
    SessionDB(path).close()
    accepted: dict[str, int] = {}
    spooled = 0
    for number in range(ROUNDS):
        with ExitStack() as stack:
            holder = stack.enter_context(Worker())
            holder.start("hold_lock_now_and_then", path=str(path), seconds=100, each=0.04)
            running = {f"r{number}w{n}": stack.enter_context(Worker()) for n in range(3)}
            for tag, worker in running.items():
                worker.start("keep_spooling", path=str(path), session=f"s-{tag}", tag=tag)
            openers = [stack.enter_context(Worker()) for _ in range(2)]
            for worker in openers:
                worker.start("visit", path=str(path), session="visits", texts=["hello"])
            for tag, worker in running.items():
                wanted = rng.choice((1, rng.randrange(1, 20), rng.randrange(1, 60)))
                lines = [worker.line() for _ in range(wanted)]
                while spooled <= number and not any(line.get("kept") for line in lines):
                    lines.append(worker.line())  # the lock caused at least one spooled message in every round
                    assert lines[-1], "it died"
                time.sleep(rng.random() * 0.02)
                worker.signal(signal.SIGKILL)
                lines += worker.lines()
                numbers = [line["n"] for line in lines if "n" in line]
                assert numbers == list(range(len(numbers)))
                accepted[tag] = len(numbers)
                spooled += sum(line.get("kept", False) for line in lines)
            for worker in openers:
                worker.kill()
    assert spooled >= ROUNDS

    with SessionDB(path) as db:
        for tag, count in accepted.items():
            texts = [text.split()[0] for text in contents(db, f"s-{tag}")]
            assert texts == [f"{tag}n{n}" for n in range(len(texts))]
            assert count <= len(texts) <= count + 1
        status = db.spool_status()
        assert (status.entries, status.refused) == (0, 0)
        report = db.verify()
        assert report.ok, report.lines()


@pytest.mark.full
def test_a_replay_that_is_killed_again_and_again_stores_once(spooling: SessionDB, home: Path) -> None:
    texts = [f"kept{n} " + "word " * 20 for n in range(150)]
    impatient(spooling, 0.0)
    kept(spooling, "s", *texts)
    rng, kills = random.Random(1), 0
    while (stored := spooling.message_count("s")) <= len(texts):
        wanted = min(stored + rng.randrange(1, 40), len(texts) + 1)
        with Worker() as worker:
            worker.start("open_store", path=str(spooling.db_path))
            while spooling.message_count("s") < wanted and worker.is_alive():
                pass
            worker.kill()
        kills += 1
    assert kills > 3
    with SessionDB() as db:
        assert contents(db, "s") == ["before", *texts]
        assert db.spool_status() == (0, 0, None, 0, ())


def test_a_spooled_message_of_a_person_is_stored_only_in_their_session(
    spooling: SessionDB, home: Path
) -> None:
    ann, bob = spooling.scoped(Principal("telegram", "ann")), spooling.scoped(Principal("telegram", "bob"))
    mine, theirs = ann.create_session(), bob.create_session()
    with locked(spooling.db_path):
        for session_id in (mine, theirs):
            with pytest.raises(errors.StoreBusy) as caught:
                ann.append_message(session_id, "user", f"by ann in {session_id}")
            assert caught.value.spooled is not None
    ann.append_message(mine, "user", "after")
    assert contents(spooling, mine) == [f"by ann in {mine}", "after"]
    assert contents(spooling, theirs) == []
    assert spooling.spool_status().refused == 1
