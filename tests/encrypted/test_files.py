"""The files beside an encrypted store are sealed with the key of the store. The program reads and changes
them as before. A conversion of the store converts all of them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes import errors
from hermes.agent.prompt.memory_files import Memory
from hermes.agent.prompt.skill_files import Skill, Skills
from hermes.cli.main import main
from hermes.gateway.inbound import received_files
from hermes.gateway.inbound_events import Attachment
from hermes.gateway.mirror import sessions_json
from hermes.gateway.mirror.sessions_json import IndexFile
from hermes.store.engine_choice import sealed_files
from hermes.store.sealing.sealed_files import MARK, is_sealed_file
from hermes.store.sqlite.upkeep.conversion import decrypt_file, encrypt_file
from hermes_state import SessionDB
from tests.encrypted.conftest import SECRET, files_that_tell
from tests.encrypted.words import TEXT, input_history, read_words, room, small_store, words_of, write_words

# ------------------------------------------------------------------------------------------------ writing and
# reading


def test_files_with_text_are_sealed_and_read_as_before(store: Path, home: Path) -> None:
    write_words()
    assert files_that_tell(home) == []
    files = words_of(home)
    assert len(files) == 6
    assert all(data.startswith(MARK) for data in files.values())
    assert all(file.stat().st_mode & 0o077 == 0 for file in home.rglob("*"))
    assert read_words() == [
        [TEXT],
        [TEXT],
        [Skill("release", TEXT)],
        f'---\nname: release\ndescription: "{TEXT}"\n---\n\nTag {SECRET}.\n',
        f"See {SECRET}.",
        ["notes/more.md"],
        f'---\nname: greet\ndescription: "{TEXT}"\n---\n\nSay {SECRET}.\n',
        ["second", f"first {SECRET}\nand more"],
    ]


def test_sealed_files_can_be_changed(store: Path, home: Path) -> None:
    write_words()
    Memory().replace("user", SECRET, f"Dislikes {SECRET}.")
    Skills().edit("release", description=f"Now about {SECRET}")
    assert Memory().read("user").entries == [f"Dislikes {SECRET}."]
    assert Skills().all()[0].description == f"Now about {SECRET}"
    Memory().remove("user", SECRET)
    assert Memory().read("user").entries == []
    assert files_that_tell(home) == []


def test_a_file_that_a_person_wrote_is_read_and_sealed_at_the_next_change(store: Path, home: Path) -> None:
    file = home / "memories" / "USER.md"
    file.parent.mkdir()
    file.write_text(f"{TEXT}\n")
    assert Memory().read("user").entries == [TEXT]
    Memory().add("user", "Has a cat.")
    assert is_sealed_file(file)
    assert Memory().read("user").entries == [TEXT, "Has a cat."]


def test_a_pending_attachment_is_sealed(store: Path, home: Path) -> None:
    path = received_files._store_file(TEXT.encode())
    assert files_that_tell(home) == []
    attachment = Attachment("file", "a.txt", "text/plain", len(TEXT), str(path))
    assert TEXT in received_files._describe_file(attachment)
    picture = Attachment("image", "a.png", "image/png", len(TEXT), str(path))
    assert received_files._data_url(picture) is not None


def test_entries_of_the_history_are_added_and_nothing_is_rewritten(store: Path, home: Path) -> None:
    history = input_history()
    history.append_string("one")
    before = (home / "chat_history").read_bytes()
    history.append_string("two")
    after = (home / "chat_history").read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == before.count(b"\n") + 1


def test_a_plain_history_is_sealed_at_the_next_entry(store: Path, home: Path) -> None:
    (home / "chat_history").write_text(f"\n# 2026-01-01 10:00:00\n+{SECRET}\n+two lines\n")
    history = input_history()
    assert list(history.load_history_strings()) == [f"{SECRET}\ntwo lines"]
    history.append_string("next")
    assert files_that_tell(home) == []
    assert list(input_history().load_history_strings()) == ["next", f"{SECRET}\ntwo lines"]


def test_a_truncated_entry_does_not_affect_others(store: Path, home: Path) -> None:
    history = input_history()
    history.append_string("one")
    with (home / "chat_history").open("ab") as file:
        file.write(b"AAAA")
    history.append_string("two")
    assert list(input_history().load_history_strings()) == ["two", "one"]


# ------------------------------------------------------------------------------------------------ keys


def test_without_the_key_nothing_is_read_and_nothing_is_lost(
    store: Path, home: Path, key: bytes, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_words()
    before = words_of(home)
    forget()
    for attempt in (
        lambda: Memory().read("user"),
        lambda: Memory().add("user", "more"),
        lambda: Skills().view("release"),
        lambda: Skills().create("new", "later", "a text"),
        lambda: sealed_files().write(home / "memories" / "USER.md", b"plain"),
    ):
        with pytest.raises(errors.StoreLocked, match="no key for it was found"):
            attempt()
    input_history().append_string("not kept, and never in plain")
    monkeypatch.setenv("HERMES_STORE_KEY", secrets.token_hex(32))
    with pytest.raises(errors.WrongKey):
        Memory().read("user")
    with pytest.raises(errors.WrongKey):
        Skills().edit("release", content="other")
    assert words_of(home) == before
    assert not (home / "skills" / "new").exists()
    monkeypatch.setenv("HERMES_STORE_KEY", key.hex())
    assert Memory().read("user").entries == [TEXT]


def test_a_sealed_file_cannot_replace_another(store: Path, home: Path, key: bytes) -> None:
    write_words()
    theirs = room() / "memories" / "MEMORY.md"
    mine = home / "memories" / "MEMORY.md"
    shutil.copy(theirs, mine)
    with pytest.raises(errors.SealBroken, match="was sealed as people/"):
        Memory().read("memory")
    done = encrypt_file(store, key)  # the report names a file that was moved
    assert any("was sealed as people/" in line for line in done.left)
    assert Memory().read("memory").entries == [TEXT]


def test_a_changed_bit_is_not_read_as_text(store: Path, home: Path) -> None:
    write_words()
    for name in words_of(home):
        file = home / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
        with pytest.raises(errors.SealBroken):
            sealed_files().read_opened(file)
        file.write_bytes(whole.replace(b'"name": "', b'"name": "x', 1))
        with pytest.raises(errors.SealBroken):
            sealed_files().read_opened(file)


def test_without_the_library_the_error_names_the_package(store: Path, home: Path, tmp_path: Path) -> None:
    write_words()
    before = words_of(home)
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "cryptography.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(absent), os.environ["PYTHONPATH"]])
    write = "from hermes.agent.prompt.memory_files import Memory; Memory().add('user', 'x')"
    done = subprocess.run(
        [sys.executable, "-c", write], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert "pip install cryptography" in done.stderr.splitlines()[-1]
    assert words_of(home) == before


# ------------------------------------------------------------------------------------------------ conversion
# in both directions


def test_encrypting_seals_existing_files_and_decrypting_opens_them(
    plain: Path, home: Path, key: bytes
) -> None:
    write_words()
    before, files = words_of(home), read_words()
    assert all(SECRET.encode() in data for data in before.values())

    done = encrypt_file(plain, key)
    assert sorted(str(file.relative_to(home)) for file in done.files) == sorted(before)
    assert done.left == ()
    assert done.plain == ()
    assert files_that_tell(home) == []
    assert read_words() == files
    assert encrypt_file(plain, key).files == ()

    done = decrypt_file(plain)
    assert sorted(str(file.relative_to(home)) for file in done.files) == sorted(before)
    assert words_of(home) == before
    assert decrypt_file(plain).files == ()


def test_the_old_bytes_are_overwritten(plain: Path, home: Path, key: bytes) -> None:
    write_words()
    file = home / "memories" / "USER.md"
    with file.open("rb") as old:
        encrypt_file(plain, key)
        assert set(old.read()) == {0}
    other = home / "memories" / "MEMORY.md"
    other.write_text(TEXT)
    os.link(other, home / "another-name")
    done = encrypt_file(plain, key)
    assert done.left == (f"{other} has another hard link, which is not sealed",)


def test_programs_of_a_skill_stay_as_they_are(plain: Path, home: Path, key: bytes) -> None:
    write_words()
    program = home / "skills" / "release" / "run.sh"
    program.write_text("#!/bin/sh\necho done\n")
    program.chmod(0o700)
    done = encrypt_file(plain, key)
    assert [(kind.files, kind.tells) for kind in done.plain] == [((program,), False)]
    assert subprocess.run([str(program)], capture_output=True, text=True).stdout == "done\n"
    sealed = home / "skills" / "release" / "notes" / "more.md"
    sealed.chmod(0o700)  # it now looks like a program, but decrypting must open it
    decrypt_file(plain)
    assert sealed.read_text() == f"See {SECRET}."


def test_beside_a_store_of_no_home_nothing_is_sealed(tmp_path: Path, key: bytes) -> None:
    project = tmp_path / "project"
    (project / "skills").mkdir(parents=True)
    note = project / "skills" / "mine.md"
    note.write_text(TEXT)
    path = small_store(project)
    assert encrypt_file(path, key).files == ()
    assert note.read_text() == TEXT


def test_a_damaged_file_is_left_and_named_when_the_rest_is_opened(store: Path, home: Path) -> None:
    write_words()
    file = home / "memories" / "USER.md"
    broken = file.read_bytes()[:-1] + b"?"
    file.write_bytes(broken)
    done = decrypt_file(store)
    assert [line for line in done.left if str(file) in line] == list(done.left) != []
    assert file.read_bytes() == broken
    assert Skills().view("release", "notes/more.md") == f"See {SECRET}."


# ------------------------------------------------------------------------------------------------ files that
# stay plain


async def test_the_index_file_is_off_for_an_encrypted_store_unless_it_is_asked_for(
    store: Path, home: Path
) -> None:
    assert not sessions_json.is_enabled(None, store)
    assert sessions_json.is_enabled(True, store)
    stop = asyncio.Event()
    stop.set()
    with SessionDB(store) as db:
        await IndexFile(db, home / "sessions", enabled=False).follow(stop)
        assert not (home / "sessions").exists()
        await IndexFile(db, home / "sessions", enabled=True).follow(stop)
        assert (home / "sessions" / "sessions.json").exists()


def plain_neighbours(home: Path) -> None:
    (home / "sessions").mkdir()
    (home / "sessions" / "s0.jsonl").write_text(TEXT)
    (home / "sessions" / "older.jsonl").write_text(TEXT)
    (home / "sessions" / "sessions.json").write_text("{}")
    (home / "sessions" / "request_dump_s0_1.json").write_text(TEXT)
    (home / "config.yaml").write_text("sessions: {}\n")
    (home / "config.yaml").chmod(0o600)
    (home / "export.md").write_text(TEXT)


def test_encrypting_lists_files_that_stay_plain(
    home: Path, key: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HERMES_STORE_KEY")
    small_store(home)
    write_words()
    plain_neighbours(home)
    monkeypatch.setenv("HERMES_STORE_KEY", key.hex())
    assert main(["store", "encrypt", "--env"]) == 0
    output = capsys.readouterr().out
    assert "Sealed with the key of the store: chat_history, memories (1), people (2), skills (2)." in output
    for line in (
        "sessions/older.jsonl, sessions/s0.jsonl, sessions/sessions.json (`hermes store encrypt --remove-plain`",
        "saved conversations and request dumps: sessions/request_dump_s0_1.json",
        "other files, such as exports: export.md",
        "settings and keys: config.yaml",
    ):
        assert line in output
    assert (home / "sessions" / "s0.jsonl").exists()

    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    assert "Plain files: saved conversations and request dumps (1): sessions/request_dump_s0_1.json" in output
    assert "Plain files without conversations: settings and keys (1)" in output


def test_only_copies_of_stored_data_are_removed_and_only_on_request(
    home: Path, key: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small_store(home)
    plain_neighbours(home)
    assert main(["store", "encrypt", "--remove-plain"]) == 0
    output = capsys.readouterr().out
    assert "Removed: 1 plain copy of stored data." in output
    assert "older.jsonl (its session is not in the store)" in output
    assert "sessions.json (the gateway has not read it yet)" in output
    assert sorted(file.name for file in (home / "sessions").iterdir()) == [
        "older.jsonl",
        "request_dump_s0_1.json",
        "sessions.json",
    ]
    with SessionDB(path) as db:
        db.set_meta("gateway:older_routing", "2026-01-01")
    assert main(["store", "encrypt", "--remove-plain"]) == 0
    assert not (home / "sessions" / "sessions.json").exists()


def test_links_are_named_and_their_targets_are_not_changed(
    plain: Path, home: Path, tmp_path: Path, key: bytes
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "SKILL.md").write_text(TEXT)
    (home / "skills").mkdir()
    link = home / "skills" / "linked"
    link.symlink_to(checkout)
    done = encrypt_file(plain, key)
    assert done.left == (f"not sealed: {link} (a symbolic link; its target is not sealed)",)
    assert [kind.files for kind in done.plain] == [(link,)]
    assert (checkout / "SKILL.md").read_text() == TEXT


def test_the_doctor_names_sealed_files_that_cannot_be_read(
    store: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_words()
    assert main(["doctor"]) == 0
    shutil.copy(home / "memories" / "USER.md", home / "memories" / "MEMORY.md")
    with (home / "chat_history").open("ab") as file:
        file.write(b"AAAA\n")
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "MEMORY.md was sealed as memories/USER.md and cannot be read at another path" in output
    assert "chat_history: 1 of 3 entries are damaged" in output


def test_a_key_beside_the_store_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_store(home)
    assert main(["store", "encrypt", "--generate", "--key-file", str(home / "the.key")]) == 0
    assert "the key of the store: the.key (keep it away from the store)" in capsys.readouterr().out


def test_a_purge_names_sealed_files_that_hold_the_words(
    store: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = "the heron nests behind the third lighthouse"
    with SessionDB(store) as db:
        db.create_session("gone", "cli")
        db.append_message("gone", "user", words)
        Memory().add("memory", words)
        input_history().append_string(words)
        db.delete_session("gone", purge=True)
    assert "memories/MEMORY.md contains words of a deleted session" in caplog.text
    assert "chat_history contains words of a deleted session" in caplog.text


# ------------------------------------------------------------------------------------------------ edited by
# hand


def test_a_person_edits_a_sealed_file(
    store: Path,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_words()
    program = tmp_path / "editor.sh"
    modes = f'ls -ld "$1" "$(dirname "$1")" | cut -c1-10 > {tmp_path}/modes'
    script = f'cp "$1" "$1.swp"\n{modes}\necho "Has a cat." >> "$1"\n'
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(program))
    monkeypatch.delenv("VISUAL", raising=False)
    for words in (["memory", "edit", "user"], ["skills", "edit", "release"]):
        assert main(words) == 0
    assert sorted((tmp_path / "modes").read_text().split()) == ["-rw-------", "drwx------"]
    assert files_that_tell(home) == []
    assert list(home.glob(".editing-*")) == []
    capsys.readouterr()
    assert main(["memory", "show", "user"]) == 0
    assert main(["skills", "show", "release"]) == 0
    output = capsys.readouterr().out
    assert output.count("Has a cat.") == 2
    assert SECRET in output


def test_files_of_a_killed_editor_are_listed(store: Path, home: Path, key: bytes) -> None:
    (home / ".editing-1234").mkdir()
    left = home / ".editing-1234" / "USER.md"
    left.write_text(TEXT)
    assert [kind.files for kind in encrypt_file(store, key).plain] == [(left,)]
