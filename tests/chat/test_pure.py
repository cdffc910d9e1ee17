"""Functions without side effects: the message on leaving, pastes, mentioned files, blocks of Markdown,
folders and branches.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.chat.commands.table import parse_command
from hermes.chat.input.attachments import attach_files
from hermes.chat.input.pastes import Pastes
from hermes.chat.view.markdown_blocks import Blocks
from hermes.chat.view.recap import format_duration, format_farewell
from hermes.conversation.working_directory import choose_directory, read_branch
from hermes.message_content import read_typed
from tests.chat.echo import MARKDOWN


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0s"), (59.9, "59s"), (60, "1m 0s"), (123, "2m 3s"), (3723, "1h 2m 3s"), (-5, "0s")],
)
def test_a_duration_is_hours_minutes_and_seconds(seconds: float, told: str) -> None:
    assert format_duration(seconds) == told


def test_the_message_on_leaving_shows_how_to_resume() -> None:
    rows: list[dict[str, Any]] = [
        {"role": "user"},
        {"role": "assistant", "tool_calls": [{}]},
        {"role": "tool"},
        {"role": "assistant"},
    ]
    assert format_farewell("20250305_091523_a1b2c3d4", "my project", 3723, rows) == [
        "Resume this session with:",
        "  hermes --resume 20250305_091523_a1b2c3d4",
        '  hermes -c "my project"',
        "",
        "Session:  20250305_091523_a1b2c3d4",
        "Title:    my project",
        "Duration: 1h 2m 3s",
        "Messages: 4 (1 user, 2 tool calls)",
    ]
    assert format_farewell("id", None, 1, []) == ["Goodbye."]


def test_a_title_is_quoted_for_the_shell() -> None:
    assert "  hermes -c 'what \"$x\" is'" in format_farewell("id", 'what "$x" is', 1, [{"role": "user"}])


def test_a_long_paste_is_a_mark_until_it_is_sent() -> None:
    pastes, long = Pastes(), "x" * 1_000_000
    mark = pastes.abbreviate(long)
    assert mark == "[pasted #1: 1 lines, 1,000,000 characters]"
    assert pastes.abbreviate("short\r\nlines") == "short\nlines"
    assert pastes.expand(f"look: {mark}!") == (f"look: {long}!", [(6, 1_000_006)])
    assert pastes.expand("[pasted #9: what]") == ("[pasted #9: what]", [])
    assert pastes.collapse(f"look: {long}!") == f"look: {mark}!"
    assert pastes.expand(pastes.collapse("y" * 50_000)).text == "y" * 50_000


@given(st.lists(st.one_of(st.text(), st.text(min_size=1).map(lambda text: text * 2001)), max_size=5))
def test_pastes_come_back_as_they_were(texts: list[str]) -> None:
    pastes = Pastes()
    shown = "|".join(pastes.abbreviate(text) for text in texts)
    wanted = "|".join(text.replace("\r\n", "\n").replace("\r", "\n") for text in texts)
    assert pastes.expand(shown).text == wanted


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 992


def test_a_mentioned_file_is_attached(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk\n")
    text = "see @notes.txt, mail me@notes.txt"
    message = attach_files(text, tmp_path)
    assert message.content == f"{text}\n\n[file notes.txt]\n```\nremember the milk\n```"
    assert message.notes == ["Attached notes.txt (1 line, 18 bytes)."]
    assert read_typed(message.content) == text
    assert attach_files("no file @ all", tmp_path) == ("no file @ all", [])


def test_a_notice_says_which_part_of_a_long_file_is_sent(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 20_000)
    assert attach_files("@long.txt", tmp_path).notes == [
        "Attached long.txt (1 line, 100.0 kB); its middle is left out, 50,000 of 100,000 characters are sent."
    ]


@pytest.mark.parametrize(
    ("name", "told", "sent"),
    [
        (
            "notse.txt",
            "@notse.txt is not a file in {cwd}, so nothing is attached for it. Did you mean @notes.txt?",
            "",
        ),
        ("ann", "@ann is not a file in {cwd}, so nothing is attached for it.", ""),
        ("src", "src is a folder; only its name is sent.", "[file src: a folder; not attached]"),
        (
            "a.bin",
            "a.bin is not a text file (3 bytes); only its name is sent.",
            "[file a.bin: binary, 3 bytes; not attached]",
        ),
        (
            "pipe",
            "pipe is not a file; only its name is sent.",
            "[file pipe: not a file; not attached]",
        ),
        (
            "huge.png",
            "huge.png is too large for a picture (6.0 MB, at most 5.0 MB); only its name is sent.",
            "[file huge.png: a picture of 6.0 MB, too large; not attached]",
        ),
        (
            "huge.log",
            "huge.log is too large to attach (30.0 MB, at most 20.0 MB); only its name is sent.",
            "[file huge.log: 30.0 MB, too large to attach; not attached]",
        ),
    ],
)
def test_a_file_that_cannot_be_attached_is_reported(tmp_path: Path, name: str, told: str, sent: str) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk")
    (tmp_path / "src").mkdir()
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge.png").write_bytes(PNG + b"\0" * 6_000_000)
    with (tmp_path / "huge.log").open("wb") as file:
        file.truncate(30_000_000)
    message = attach_files(f"look at @{name}", tmp_path)
    assert message.notes == [told.format(cwd=tmp_path)]
    assert message.content == "\n\n".join(filter(None, (f"look at @{name}", sent)))
    assert read_typed(message.content) == f"look at @{name}"


def test_a_link_to_a_file_elsewhere_is_not_followed(tmp_path: Path) -> None:
    elsewhere, cwd = tmp_path / "else where", tmp_path / "project"
    for folder in (elsewhere, cwd / "docs"):
        folder.mkdir(parents=True)
    (elsewhere / "key").write_text("secret")
    (cwd / "app.log").write_text("line")
    (cwd / "notes.md").symlink_to(elsewhere / "key")
    (cwd / "shared").symlink_to(elsewhere)
    (cwd / "docs" / "up.log").symlink_to("../app.log")
    (cwd / "latest.log").symlink_to("app.log")
    for name, real in (
        ("notes.md", elsewhere / "key"),
        ("shared/key", elsewhere / "key"),
        (f"{cwd}/notes.md", elsewhere / "key"),
        ("docs/up.log", cwd / "app.log"),
    ):
        message = attach_files(f"see @{name}", cwd)
        assert message.content == f"see @{name}\n\n[file {name}: a link to a file elsewhere; not attached]"
        (note,) = message.notes
        said, mention = note.split(" To attach it, type ")
        assert said == f"{name} leads through a link to {real}; only its name is sent."
        assert attach_files(f"see {mention.removesuffix('.')}", cwd).notes[0].startswith(f"Attached {real} (")
    assert attach_files("@latest.log", cwd).notes == ["Attached latest.log (1 line, 4 bytes)."]
    (tmp_path / "here").symlink_to(cwd)  # the working directory itself may be a link
    assert attach_files("@app.log", tmp_path / "here").notes == ["Attached app.log (1 line, 4 bytes)."]


def test_several_missing_files_are_reported_in_one_line(tmp_path: Path) -> None:
    assert attach_files("@ann and @bob", tmp_path).notes == [
        f"@ann, @bob are not files in {tmp_path}, so nothing is attached for them."
    ]


def test_a_picture_is_a_part_of_the_message(tmp_path: Path) -> None:
    (tmp_path / "my cat.png").write_bytes(PNG)
    message = attach_files('what is @"my cat.png"?', tmp_path)
    text, picture = message.content
    assert text == {"type": "text", "text": 'what is @"my cat.png"?\n\n[picture my cat.png]'}
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert message.notes == ["Attached my cat.png (PNG picture, 1.0 kB)."]
    assert read_typed(message.content) == 'what is @"my cat.png"?'


@given(
    st.lists(
        st.one_of(st.text(alphabet="ab *`#|-1.\n>"), st.sampled_from(MARKDOWN.splitlines(keepends=True)))
    )
)
def test_blocks_are_the_text_in_order(pieces: list[str]) -> None:
    blocks = Blocks()
    finished = "".join(blocks.add(piece) for piece in pieces)
    assert finished + blocks.take_rest() == "".join(pieces)


def test_a_fence_is_finished_as_a_whole() -> None:
    blocks = Blocks()
    given_back = [
        blocks.add(line) for line in "before\n\n```\na\n\nb\n```\n\nafter\n".splitlines(keepends=True)
    ]
    assert [text for text in given_back if text] == ["before\n\n", "```\na\n\nb\n```\n\n"]
    assert blocks.take_rest() == "after\n"


def test_commands_and_messages_are_distinguished() -> None:
    assert parse_command("hello /new") is None
    assert parse_command("/etc/hosts is empty") is None
    new = parse_command("/new  a title ")
    assert new is not None
    assert new == ("new", "a title")
    for typed in ("/NEW a title", "/new\ta title", "/new\na title", " /new@bot a title"):
        assert parse_command(typed) == new
    begun = parse_command("/bra")
    assert begun is not None
    assert begun.name == "branch"
    assert parse_command("/Re") == ("Re", "")


def test_a_place_is_restored_or_replaced(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    assert choose_directory(str(there), None, here) == (there, f"Working in {there}, as before.")
    assert choose_directory(str(here), None, here) == (here, None)
    assert choose_directory(str(tmp_path / "gone"), None, here) == (
        here,
        f"{tmp_path / 'gone'} is gone; working in {here}.",
    )
    assert choose_directory(str(there), here, there) == (here, f"Working in {here}.")
    assert choose_directory(None, None, here) == (here, None)


def test_the_branch_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    (tmp_path / "sub").mkdir()
    assert read_branch(tmp_path / "sub") == "feature/x"
    (tmp_path / ".git" / "HEAD").write_text("0123abcd\n")
    assert read_branch(tmp_path) is None
