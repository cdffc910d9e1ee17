"""A purge leaves no byte of a session in any copy beside the store, and everything else where it was."""

from __future__ import annotations

import logging
import random
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests import reference_databases as reference

SECRET = "quetzalcoatlus"
STEM = "quetzalcoatlu"
"""As the index that ranks conversations keeps it."""


def held(folder: Path, text: str | bytes) -> set[str]:
    wanted = text if isinstance(text, bytes) else text.encode()
    return {file.name for file in folder.rglob("*") if file.is_file() and wanted in file.read_bytes()}


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
    assert talk.search_sessions_ranked(SECRET)[0]["session_id"] == "secret"  # blocks are indexed, too
    own, named = talk.backup().path, talk.backup(home / "mine.db").path
    with caplog.at_level(logging.WARNING):
        assert talk.delete_session("secret", purge=True)
    talk.close()
    assert held(home, SECRET) == held(home, STEM) == set()
    assert own.exists()
    assert named.exists()
    assert [line for line in caplog.messages if "rewritten without it" in line]
    for copy in (own, named):
        with SessionDB(copy) as kept:
            assert [row["id"] for row in kept.list_sessions_rich()] == ["other"]
            assert len(kept.search_messages("pelican")) == 1
            assert [row["session_id"] for row in kept.search_sessions_ranked("pelicans")] == ["other"]
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


def test_no_byte_of_an_attachment_is_left_that_only_the_purged_session_showed(talk: SessionDB) -> None:
    home = talk.db_path.parent
    own, shared, replaced = (random.Random(seed).randbytes(20_000) for seed in "osr")

    def shown(data: bytes) -> list[Any]:
        return [{"type": "image", "mimeType": "image/png", "data": b64encode(data).decode()}]

    talk.append_message("secret", "user", shown(replaced))
    before = talk.backup().path
    talk.replace_messages("secret", [{"role": "user", "content": shown(data)} for data in (own, shared)])
    talk.append_message("other", "user", shown(shared))
    after = talk.backup().path
    for data in (own, shared, replaced):
        assert (before if data is replaced else after).name in held(home, data[:64])
    assert talk.delete_session("secret", purge=True)
    assert talk.get_messages("other")[-1]["content"] == shown(shared)
    talk.close()
    for data in (own, replaced):
        for at in range(0, len(data), 1000):
            part = data[at : at + 30]
            assert held(home, part) == set()
            assert held(home, b64encode(part)) == set()
    for copy, pictures in ((before, 0), (after, 1)):
        with SessionDB(copy) as kept:
            assert kept.raw().execute("SELECT count(*) FROM blobs").fetchone()[0] == pictures
            assert kept.verify().ok
