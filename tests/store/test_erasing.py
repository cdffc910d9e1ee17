"""A purge leaves no byte of a session in any copy beside the store, and everything else where it was."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests import reference_databases as reference

SECRET = "quetzalcoatlus"


def held(folder: Path, text: str) -> set[str]:
    return {file.name for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()}


@pytest.fixture
def talk(db: SessionDB) -> SessionDB:
    for name in ("secret", "other"):
        db.create_session(name, "cli")
    db.append_message("secret", "user", f"the word is {SECRET}")
    db.append_message("other", "user", "the word is pelican")
    return db


def test_copies_are_rewritten_without_the_session_and_keep_the_others(
    talk: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    home = talk.db_path.parent
    own, named = talk.backup().path, talk.backup(home / "mine.db").path
    with caplog.at_level(logging.WARNING):
        assert talk.delete_session("secret", purge=True)
    talk.close()
    assert held(home, SECRET) == set()
    assert own.exists()
    assert named.exists()
    assert [line for line in caplog.messages if "rewritten without it" in line]
    for copy in (own, named):
        with SessionDB(copy) as kept:
            assert [row["id"] for row in kept.list_sessions_rich()] == ["other"]
            assert len(kept.search_messages("pelican")) == 1
            assert kept.verify().ok


def test_a_copy_from_before_a_migration_is_rewritten_too(home: Path) -> None:
    path = home / "state.db"
    home.mkdir(mode=0o700, exist_ok=True)
    expected = reference.build(path, 11)
    with SessionDB(path) as db:
        backups = list(path.with_name("state.db.backups").glob("*before-migration*.db"))
        assert len(backups) == 1
        doomed = max(expected.message_counts, key=lambda name: expected.message_counts[name])
        others = {row["id"] for row in db.search_sessions(limit=1000)} - {doomed}
        elsewhere = str([db.export_session(name) for name in others])  # prompts and titles too
        said = " ".join(str(message["content"]) for message in db.get_messages(doomed))
        words = {word for word in said.split() if len(word) > 5 and word.isalnum() and word not in elsewhere}
        words = {word for word in words if backups[0].name in held(home, word)}
        assert words
        assert db.delete_session(doomed, purge=True)
        assert {row["id"] for row in db.search_sessions(limit=1000)} == others
    assert {word: held(home, word) for word in words if held(home, word)} == {}
    assert backups[0].exists()


def test_what_cannot_be_rewritten_is_removed(talk: SessionDB) -> None:
    path = talk.db_path
    copy = talk.backup().path
    aside = [
        copy.with_name(f"{copy.name}.damaged"),
        copy.with_name(".state.00.hermes-partial"),
        path.with_name(f"{path.name}.damaged-20260101_000000-abcd"),
    ]
    for file in aside:
        file.write_bytes(SECRET.encode())
    (copy.parent / "notes.txt").write_text("mine", encoding="utf-8")
    talk.delete_session("secret", purge=True)
    assert [file for file in aside if file.exists()] == []
    assert (copy.parent / "notes.txt").exists()


def test_other_peoples_databases_in_the_home_are_left_alone(talk: SessionDB) -> None:
    stranger = talk.db_path.with_name("stranger.db")
    stranger.write_bytes(b"no database at all")
    talk.delete_session("secret", purge=True)
    assert stranger.read_bytes() == b"no database at all"
