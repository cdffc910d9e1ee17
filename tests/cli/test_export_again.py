"""`hermes sessions export FILE` when FILE exists. The file is replaced, kept or refused."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.export.output_file import FileKind, classify_file
from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, AddSession, Hermes

NAMES = {
    "jsonl": ["a.jsonl"],
    "json": ["a.json", "--format", "jsonl"],
    "md": ["a.md"],
    "html": ["a.html"],
    "trace": ["a.jsonl", "--format", "trace"],
    "prompts": ["a.jsonl", "--only", "user-prompts"],
    "redacted": ["a.jsonl", "--redact"],
    "segment": ["a.bak", "--format", "jsonl", "--session-id", "first", "--segment"],
}


@pytest.fixture(autouse=True)
def stored(db: SessionDB, add_session: AddSession) -> None:
    add_session("first", "said first", title="Plans", age=10)


def export(hermes: Hermes, folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    return hermes("sessions", "export", str(folder / words[0]), *words[1:])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def test_a_repeated_export_keeps_the_previous_one(
    hermes: Hermes, folder: Path, add_session: AddSession
) -> None:
    file = folder / "backup.jsonl"
    for night in range(3):
        add_session(f"night{night}", "said", age=5 - night)
        result = hermes("sessions", "export", str(file))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines()[0] == f"Exported {night + 2} sessions to {file}"
    assert result.stdout.splitlines()[1:] == ["Kept the previous export as backup.jsonl~"]
    assert names(folder) == ["backup.jsonl", "backup.jsonl~"]
    lines = [len(path.read_bytes().splitlines()) for path in sorted(folder.iterdir())]
    assert lines == [4, 3]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("kind", NAMES)
def test_every_format_is_recognised_even_if_truncated(
    hermes: Hermes, db: SessionDB, folder: Path, kind: str
) -> None:
    db.set_session_title("first", "A" * 60)
    db.append_message("first", "user", "long " * 40_000)
    assert export(hermes, folder, NAMES[kind]).returncode == 0
    (file,) = folder.iterdir()
    assert classify_file(file) is FileKind.OURS
    os.truncate(file, file.stat().st_size // 2)
    before = file.read_bytes()
    db.append_message("first", "user", "something new")
    result = export(hermes, folder, NAMES[kind])
    assert (result.returncode, result.stderr) == (0, "")
    assert (folder / f"{file.name}~").read_bytes() == before
    assert b"something new" in file.read_bytes()


def test_a_large_system_prompt_does_not_hide_an_export(hermes: Hermes, db: SessionDB, folder: Path) -> None:
    db.create_session("prompted", "cli", system_prompt="be kind. " * 20_000)
    words = ["a.jsonl", "--session-id", "prompted"]
    for expected in (["a.jsonl"], ["a.jsonl", "a.jsonl~"]):
        assert export(hermes, folder, words).returncode == 0
        assert names(folder) == expected


def test_an_export_of_the_reference_is_recognised(hermes: Hermes, folder: Path) -> None:
    """The reference writes its exports with `json.dumps`, which puts a space after each comma."""
    fields: dict[str, object] = {
        "id": "x",
        "source": "cli",
        "user_id": None,
        "model": "m",
        "model_config": None,
        "messages": [],
    }
    (folder / "a.jsonl").write_text(f"{json.dumps(fields)}\n")
    assert export(hermes, folder, ["a.jsonl"]).returncode == 0
    assert json.loads((folder / "a.jsonl~").read_text()) == fields


FOREIGN: dict[str, bytes] = {
    "notes": b"mine",
    "a heading": b"# Plans\n\nmine\n",
    "a mark elsewhere": b"# Plans\n\n<!-- Exported by Hermes Sessions -->\n",
    "a page": b"<!doctype html>\n<html><head><title>x</title></head></html>",
    "a page that names us": b'<!doctype html>\n<title>x</title><meta name="generator" content="Hermes Sessions">',
    "objects": b'{"id": "1", "source": "sensor", "value": 3}\n',
    "events": b'{"parentUuid": null, "sessionId": "x", "version": "2.0"}\n',
    "a list": b"[]",
    "cut off": b'{"id":"x","sour',
    "nested": b'{"id":' + b"[" * 60_000,
    "bytes": bytes(range(256)) * 20,
    "a space": b" ",
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_other_files_are_not_recognised_as_exports(folder: Path, content: bytes) -> None:
    file = folder / "a.jsonl"
    file.write_bytes(content)
    assert classify_file(file) is FileKind.OTHER


def test_another_file_is_replaced_only_with_force(hermes: Hermes, folder: Path) -> None:
    file, content = folder / "a.jsonl", FOREIGN["objects"]
    file.write_bytes(content)
    result = export(hermes, folder, ["a.jsonl"])
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert f"{file} exists and is not an earlier export" in result.stderr
    assert file.read_bytes() == content
    assert export(hermes, folder, ["a.jsonl", "--force"]).returncode == 0
    assert names(folder) == ["a.jsonl"]


def test_an_empty_file_is_replaced_and_does_not_take_the_place_of_a_kept_export(
    hermes: Hermes, folder: Path
) -> None:
    for _ in range(2):
        assert export(hermes, folder, ["a.jsonl"]).returncode == 0
    kept = (folder / "a.jsonl~").read_bytes()
    os.truncate(folder / "a.jsonl", 0)
    assert export(hermes, folder, ["a.jsonl"]).stdout.count("\n") == 1
    assert (folder / "a.jsonl~").read_bytes() == kept
    assert (folder / "a.jsonl").stat().st_size > 0


def as_folder(path: Path) -> None:
    path.mkdir()


def as_link(path: Path) -> None:
    path.symlink_to("elsewhere")


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_notes(path: Path) -> None:
    path.write_text("mine")


@pytest.mark.parametrize("make", [as_folder, as_link, as_fifo, as_notes])
def test_a_file_with_the_name_of_the_kept_export_is_not_replaced(
    hermes: Hermes, folder: Path, make: Callable[[Path], None]
) -> None:
    taken = folder / "a.jsonl~"
    make(taken)
    before = taken.lstat().st_ino
    for _ in range(3 if make is as_notes else 2):
        result = export(hermes, folder, ["a.jsonl"])
        assert (result.returncode, result.stderr) == (0, "")
    assert "as a.jsonl~2" in result.stdout
    assert names(folder) == ["a.jsonl", "a.jsonl~", "a.jsonl~2"]
    assert taken.lstat().st_ino == before


def test_if_the_previous_export_cannot_be_kept_nothing_is_replaced(hermes: Hermes, folder: Path) -> None:
    assert export(hermes, folder, ["a.jsonl"]).returncode == 0
    for number in ["", *range(2, 10)]:
        (folder / f"a.jsonl~{number}").write_text("mine")
    before = (folder / "a.jsonl").stat().st_ino
    result = export(hermes, folder, ["a.jsonl"])
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert (folder / "a.jsonl").stat().st_ino == before


def test_a_link_is_not_followed_even_to_an_export(hermes: Hermes, folder: Path) -> None:
    assert export(hermes, folder, ["a.jsonl"]).returncode == 0
    (folder / "b.jsonl").symlink_to("a.jsonl")
    result = export(hermes, folder, ["b.jsonl"])
    assert result.returncode == 1
    assert "symbolic link" in result.stderr
    assert names(folder) == ["a.jsonl", "b.jsonl"]


def test_a_full_disk_leaves_the_export_and_the_one_before_and_stops_a_script(
    hermes: Hermes, db: SessionDB, folder: Path
) -> None:
    db.append_message("first", "user", "large " * 100_000)
    for _ in range(2):
        assert export(hermes, folder, ["a.jsonl"]).returncode == 0
    before = {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir()}

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = " ".join(COMMAND)
    script = f"{command} sessions export {folder / 'a.jsonl'} && echo pruned"
    result = subprocess.run(
        ["bash", "-c", script], preexec_fn=small_files_only, capture_output=True, encoding="utf-8"
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir()} == before


def test_several_files_are_all_replaced_or_none(
    hermes: Hermes, db: SessionDB, folder: Path, add_session: AddSession
) -> None:
    """The second file does not fit on the disk. The first file, which was already replaced, is restored."""
    add_session("second", "said", age=20)
    words = [f"{folder}/", "--format", "md"]
    assert hermes("sessions", "export", *words).returncode == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    db.append_message("first", "user", "new")
    db.append_message("second", "user", "large " * 100_000, timestamp=1.0)

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    result = subprocess.run(
        [*COMMAND, "sessions", "export", *words],
        preexec_fn=small_files_only,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
