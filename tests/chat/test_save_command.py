"""`/save` writes the whole conversation, including compressed segments and branches. The file is private."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from hermes_state import SessionDB
from tests.chat.conftest import Typing
from tests.chat.echo import PARTS
from tests.chat.test_chat import Compressing

COMPRESSING = PARTS._replace(make_compressor=lambda record, _working: Compressing(record))


def saved(home: Path) -> dict[str, Any]:
    (file,) = (home / "sessions" / "saved").iterdir()
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def words(told: dict[str, Any]) -> list[str]:
    return [message["content"] for message in told["messages"] if message["role"] == "user"]


async def test_the_file_has_every_message_once_after_compressions(
    db: SessionDB, typing: Typing, home: Path, tmp_path: Path
) -> None:
    shown = await typing(
        *("/title long", "one", "two", "/compress", "three", "four", "/compress", "five"),
        *("/save", "/save all.md", "/save all.jsonl", "/save all.html"),
        parts=COMPRESSING,
    )
    told = saved(home)
    assert words(told) == ["one", "two", "three", "four", "five"]
    assert told["session_id"] == db.tip("long")
    assert len(told["sessions"]) == 3
    assert told["message_count"] == len(told["messages"])
    assert len({message["id"] for message in told["messages"]}) == len(told["messages"])
    for name in ("all.md", "all.jsonl", "all.html"):
        text = (tmp_path / name).read_text()
        places = [text.index(f"you said: {word}") for word in ("one", "two", "three", "four", "five")]
        assert places == sorted(places)
        assert text.count("you said: two") == 1
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert "hermes_conversation_" in "".join(shown.split("\n"))


async def test_a_branch_has_what_came_before_it(typing: Typing, home: Path) -> None:
    await typing("one", "two", "/branch", "three", "/save")
    assert words(saved(home)) == ["one", "two", "three"]


async def test_the_file_is_private_and_gets_a_new_name(typing: Typing, home: Path) -> None:
    folder = home / "sessions" / "saved"
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    shown = await typing("one", "/save", "/save")
    files = sorted(folder.iterdir())
    assert len(files) == 2
    assert all(re.fullmatch(r"hermes_conversation_\d{8}_\d{6}(_2)?\.json", file.name) for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(f"Wrote {file}" in "".join(shown.split("\n")) for file in files)


async def test_a_folder_gets_a_file_and_an_error_is_one_line(typing: Typing, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    shown = await typing("/title Plans", "one", "/save notes", "/save nowhere/x.md")
    (file,) = (tmp_path / "notes").iterdir()
    assert file.name.startswith("Plans-")
    assert "you said: one" in file.read_text()
    assert "there is no folder" in " ".join(shown.split())


async def test_an_incognito_conversation_can_be_saved(typing: Typing, tmp_path: Path) -> None:
    await typing("one", "/save talk.json", "/save talk.md", incognito=True)
    assert words(json.loads((tmp_path / "talk.json").read_text())) == ["one"]
    assert "you said: one" in (tmp_path / "talk.md").read_text()


class Interrupted(SessionDB):
    """A store that simulates Ctrl-C while a session is read for an export."""

    def export_session(self, session_id: str, *, redact: bool = False) -> dict[str, Any] | None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        return super().export_session(session_id, redact=redact)


async def test_ctrl_c_stops_the_export_and_leaves_no_file(typing: Typing, tmp_path: Path) -> None:
    with Interrupted() as store:
        shown = await typing("one", "/save talk.md", "two", store=store)
    assert "the export was cancelled; nothing was written" in " ".join(shown.split())
    assert "you said: two" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
