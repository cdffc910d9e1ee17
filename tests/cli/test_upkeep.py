"""`hermes sessions verify`, `repair`, `backup`, `restore` and `optimize` as commands in a separate process."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import Hermes

GARBAGE = b"this is not a database\n" * 400


@pytest.fixture
def stored(home: Path) -> Path:
    """Create and close a store with one conversation. Return its file."""
    db = SessionDB()
    db.create_session("kept", "cli")
    db.append_message("kept", "user", "remember the lighthouse")
    db.close()
    return home / "state.db"


def contents(session_id: str) -> list[str]:
    db = SessionDB()
    try:
        return [message["content"] for message in db.get_messages(session_id)]
    finally:
        db.close()


@pytest.mark.parametrize("command", ["verify", "repair", "backup", "optimize"])
def test_without_a_store_the_commands_fail_and_create_none(hermes: Hermes, home: Path, command: str) -> None:
    result = hermes("sessions", command)
    assert result.returncode == 1
    assert result.stderr.startswith("hermes: there is no store at ")
    assert not (home / "state.db").exists()


def test_an_undamaged_store_passes_verify(hermes: Hermes, stored: Path) -> None:
    result = hermes("sessions", "verify")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip()


def test_singular_and_plural_forms(hermes: Hermes, stored: Path) -> None:
    for words in (("verify",), ("repair", "--check-only"), ("doctor", "--deep")):
        shown = hermes("sessions", *words).stdout
        assert "1 session" in shown
        assert not re.search(r"\b1 (sessions|messages)\b", shown), shown


def test_garbage_is_reported_as_damage_with_a_hint(hermes: Hermes, stored: Path) -> None:
    stored.write_bytes(GARBAGE)
    for command in ("verify", "list"):
        result = hermes("sessions", command)
        assert result.returncode == 1
        assert "hermes sessions repair" in result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        assert "No sessions found" not in result.stdout
    assert stored.read_bytes() == GARBAGE


def test_check_only_changes_nothing(hermes: Hermes, stored: Path) -> None:
    stored.write_bytes(GARBAGE)
    result = hermes("sessions", "repair", "--check-only")
    assert result.returncode == 1
    assert stored.read_bytes() == GARBAGE


def test_repairing_a_whole_store_keeps_everything(hermes: Hermes, stored: Path) -> None:
    assert hermes("sessions", "repair").returncode == 0
    assert contents("kept") == ["remember the lighthouse"]


def test_a_backup_is_restored(hermes: Hermes, stored: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    saved = hermes("sessions", "backup", str(copy))
    assert saved.returncode == 0
    assert saved.stdout == f"Backed up to {copy}\n"
    assert copy.stat().st_mode & 0o077 == 0

    db = SessionDB()
    db.append_message("kept", "user", "and forget this")
    db.close()

    restored = hermes("sessions", "restore", str(copy), "-y")
    assert (restored.returncode, restored.stderr) == (0, "")
    assert contents("kept") == ["remember the lighthouse"]


def test_a_backup_without_a_name_gets_one(hermes: Hermes, stored: Path) -> None:
    result = hermes("sessions", "backup")
    assert result.returncode == 0
    written = Path(result.stdout.strip().removeprefix("Backed up to "))
    assert written.is_file()
    assert written != stored


def test_a_backup_replaces_a_file_only_when_forced(hermes: Hermes, stored: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    refused = hermes("sessions", "backup", str(taken))
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert taken.read_text() == "mine"
    assert hermes("sessions", "backup", str(taken), "--force").returncode == 0
    assert taken.read_bytes().startswith(b"SQLite format 3\0")


WRITERS = {
    "page": ("insights", "--force", "--html"),
    "export": ("sessions", "export", "--force"),
    "backup": ("sessions", "backup", "--force"),
    "new store": ("sessions", "rebuild", "--from-transcripts", "--into"),
    "key": ("store", "encrypt", "--generate", "--key-file"),
    "sample home": ("demo", "--keep"),
}
"""Every command that writes to a path that a person gives."""


@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
def test_no_command_writes_through_a_link(
    hermes: Hermes, stored: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    transcript = stored.parent / "sessions" / "kept.jsonl"
    transcript.parent.mkdir(0o700)
    transcript.write_text('{"role": "user", "content": "x"}\n')
    victim, nothing = tmp_path / "victim", tmp_path / "nothing"
    victim.write_text("mine")
    for name, target in (("live", victim), ("dangling", nothing)):
        link = tmp_path / name
        link.symlink_to(target)
        result = hermes(*words, str(link))
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.stderr
        assert link.is_symlink()
    assert victim.read_text() == "mine"
    assert not os.path.lexists(nothing)
    assert sorted(file.name for file in tmp_path.iterdir() if "nothing" in file.name) == []


@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
def test_no_command_overwrites_files_of_a_store(
    hermes: Hermes, stored: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    transcript = stored.parent / "sessions" / "kept.jsonl"
    transcript.parent.mkdir(0o700)
    transcript.touch(0o600)
    (stored.parent / ".env").write_text("OPENAI_API_KEY=sk-mine\n")
    (tmp_path / "link").symlink_to(stored)
    (tmp_path / "hard").hardlink_to(stored)
    named = ("state.db", "state.db-wal", "state.db.lock", "state.db.key.json", "config.yaml", ".env")
    before = {file: file.read_bytes() for file in stored.parent.iterdir() if file.is_file()}
    for file in (*(stored.parent / name for name in named), tmp_path / "link", tmp_path / "hard"):
        result = hermes(*words, str(file))
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.stderr
        assert "name another file" in result.stderr or "exists" in result.stderr
        after = {file: file.read_bytes() for file in stored.parent.iterdir() if file.is_file()}
        assert after == before, file
    assert contents("kept") == ["remember the lighthouse"]


def test_no_command_overwrites_the_store_of_the_home(hermes: Hermes, stored: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    assert hermes("sessions", "backup", str(other)).returncode == 0
    for words in (WRITERS["page"], WRITERS["export"], WRITERS["backup"]):
        result = hermes(*words, str(stored), "--store", str(other))
        assert result.stderr == f"hermes: {stored} is the store itself; name another file\n"
    stored.unlink()
    assert hermes("sessions", "backup", str(stored), "--store", str(other)).returncode == 0
    assert contents("kept") == ["remember the lighthouse"]


def test_only_a_backup_may_lie_among_the_backups(hermes: Hermes, stored: Path) -> None:
    hermes("sessions", "backup")
    [backup] = (stored.parent / "state.db.backups").iterdir()
    before = backup.read_bytes()
    for words in (WRITERS["page"], WRITERS["export"]):
        result = hermes(*words, str(backup))
        assert result.stderr == f"hermes: {backup} is among the store's backups; name another file\n"
    assert backup.read_bytes() == before
    assert hermes(*WRITERS["backup"], str(backup)).returncode == 0


def test_a_name_that_sqlite_cannot_open_is_one_line(hermes: Hermes, stored: Path, tmp_path: Path) -> None:
    name = str(tmp_path / os.fsdecode(b"caf\xe9"))
    shutil.copy(stored, name)
    for words in (
        ("sessions", "list", "--store", name),
        ("sessions", "backup", "--force", name),
        ("demo", "--keep", f"{name}.home"),
    ):
        result = hermes(*words)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.startswith("hermes: the path of a store must be valid UTF-8, got '")
    assert "UTF-8" in hermes("-q", "help", "-m", "offline", HERMES_HOME=f"{name}.home").stderr
    assert not os.path.exists(f"{name}.home")


def test_a_backup_never_replaces_the_store_itself(hermes: Hermes, stored: Path) -> None:
    result = hermes("sessions", "backup", str(stored), "--force")
    assert result.returncode == 1
    assert contents("kept") == ["remember the lighthouse"]


@pytest.mark.parametrize("answer", ["", "n\n", "\n", "yess\n"])
def test_restore_asks_and_accepts_only_yes(hermes: Hermes, stored: Path, tmp_path: Path, answer: str) -> None:
    copy = tmp_path / "copy.db"
    assert hermes("sessions", "backup", str(copy)).returncode == 0
    db = SessionDB()
    db.append_message("kept", "user", "newer")
    db.close()

    result = hermes("sessions", "restore", str(copy), stdin=answer)
    assert result.returncode == 1
    assert result.stderr == "hermes: Cancelled.\n"
    assert contents("kept") == ["remember the lighthouse", "newer"]

    assert hermes("sessions", "restore", str(copy), stdin="Yes\n").returncode == 0
    assert contents("kept") == ["remember the lighthouse"]


@pytest.mark.parametrize("kind", ["missing", "folder", "garbage"])
def test_restore_refuses_a_file_that_is_not_a_backup(
    hermes: Hermes, stored: Path, tmp_path: Path, kind: str
) -> None:
    offered = tmp_path / "offered.db"
    if kind == "folder":
        offered.mkdir()
    elif kind == "garbage":
        offered.write_bytes(GARBAGE)
    result = hermes("sessions", "restore", str(offered), "-y")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert contents("kept") == ["remember the lighthouse"]


def test_optimize_keeps_everything(hermes: Hermes, stored: Path) -> None:
    result = hermes("sessions", "optimize")
    assert (result.returncode, result.stderr) == (0, "")
    assert contents("kept") == ["remember the lighthouse"]
