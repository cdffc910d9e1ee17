"""`/output` and `/diff` show everything that tools did in a conversation, even before a resume, a compression
or an undo.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from hermes.agent.components import AgentComponents
from hermes.chat.commands.table import load_commands
from hermes.chat.input.completion import ChatCompleter
from hermes.chat.input.prompt_line import PromptLine
from hermes.chat.terminal_loop import Chat
from hermes.chat.view.screen import Screen
from hermes.conversation.local_conversation import open_local_conversation
from hermes_state import SessionDB
from tests.chat.conftest import ENTER, INTERRUPT, LEAVE, SEEN, Typing
from tests.chat.echo import PARTS
from tests.chat.test_chat import Compressing
from tests.chat.tool_chat import call, calls, with_tools

CTRL_O = "\x0f"


def after(shown: str, command: str) -> str:
    """Return the output after the last occurrence of `command`."""
    return shown.rpartition(command)[2]


# A turn


async def test_a_turn_shows_the_command_its_output_and_the_diff(typing: Typing, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    shown = await typing(
        call("terminal", command="echo first\nseq 1 30\nexit 3"),
        call("patch", path="a.txt", old_text="two", new_text="2"),
        call("write_file", path="b.txt", content="new\nfile\n"),
        call("read_file", path="a.txt", offset=2, limit=1),
        parts=with_tools(),
    )
    lines = [line.rstrip() for line in shown.splitlines()]
    assert re.search(r"✗ terminal  exit code 3 · \d", shown)
    at = lines.index("  $ echo first")
    assert lines[at : at + 9] == [
        "  $ echo first",
        "  > seq 1 30",
        "  > exit 3",
        "  │ first",
        "  │ 1",
        "  │ … 26 more lines (Ctrl-O opens)",
        "  │ 28",
        "  │ 29",
        "  │ 30",
    ]
    assert re.search(r"✓ patch a.txt  \+1 −1 · \d.*\n  │  one\n  │ -two\n  │ \+2\n  │  three\n", shown)
    assert re.search(r"✓ write_file b.txt  created \+2 −0 · \d.*\n  │ \+new\n  │ \+file\n", shown)
    assert "✓ read_file a.txt offset=2 limit=1" in shown


async def test_calls_with_one_id_are_shown_each_with_its_own_arguments(typing: Typing) -> None:
    shown = await typing(
        calls(["terminal", {"command": "echo a"}], ["terminal", {"command": "echo b"}]), parts=with_tools()
    )
    for letter in "ab":
        assert re.search(rf"✓ terminal echo {letter}  exit code 0 · .*s\n  │ {letter}\n", shown)


# The whole output


async def test_the_nth_last_output_is_shown_whole(typing: Typing) -> None:
    shown = await typing(
        call("terminal", command="seq 1 30"),
        call("terminal", command="echo last"),
        *("/output 2", "/output", "/output 3", "/output x"),
        parts=with_tools(),
    )
    assert "  $ seq 1 30\n" + "".join(f"  │ {number}\n" for number in range(1, 31)) in shown
    assert "  $ echo last\n  │ last\n" in shown
    assert "There were 2 tool calls in this conversation." in shown
    assert "Usage: /output" in shown


async def test_outputs_can_be_opened_after_a_resume_a_compression_and_an_undo(
    db: SessionDB, typing: Typing
) -> None:
    parts = with_tools()._replace(make_compressor=lambda record, _working: Compressing(record))
    await typing("/title long", call("terminal", command="seq 1 7"), "/compress", "hello", parts=parts)
    tip = db.tip("long")
    assert tip is not None
    shown = await typing("/output", resuming=tip)
    assert "  $ seq 1 7\n" in shown
    shown = await typing(
        call("terminal", command="echo taken"),
        "/undo",
        keys=f"{SEEN}y{INTERRUPT}/output{ENTER}",
        parts=parts,
        resuming=tip,
    )
    assert "  $ echo taken\n" in after(shown, "Took back")


async def test_without_calls_the_command_says_so(typing: Typing) -> None:
    shown = await typing("/output", "hello", "/diff")
    assert "No tool was called yet in this conversation." in shown
    assert "No file was edited in this conversation." in shown


async def press(
    db: SessionDB, tmp_path: Path, parts: AgentComponents, steps: Sequence[tuple[str, str]]
) -> str:
    """Press keys one by one, and wait for the response to each. Return all output."""
    shown = io.StringIO()
    with create_pipe_input() as pipe:
        conversation = open_local_conversation(db, parts, can_ask=True, cwd=tmp_path)
        chat = Chat(conversation, Screen(Console(file=shown, width=100)))
        completer = ChatCompleter(db, load_commands().values(), lambda: tmp_path)
        chat.prompt_line = PromptLine(completer, chat.format_toolbar, keyboard=pipe, output=DummyOutput())
        running = asyncio.create_task(chat.run())
        for keys, expected in steps:
            before = len(shown.getvalue())
            pipe.send_text(keys)
            until = time.monotonic() + 60
            while expected not in shown.getvalue()[before:]:
                assert time.monotonic() < until, shown.getvalue()[before:]
                await asyncio.sleep(0.01)
        await running
    return shown.getvalue()


async def test_ctrl_o_opens_folded_outputs_one_after_the_other(db: SessionDB, tmp_path: Path) -> None:
    steps = [
        (call("terminal", command="seq 100 120") + ENTER, "│ 120\n"),
        (call("terminal", command="seq 200 220") + ENTER, "│ 220\n"),
        (call("terminal", command="echo short") + ENTER, "│ short\n"),
        (CTRL_O, "── /output 2; Ctrl-O again opens the previous one\n"),
        (CTRL_O, "── /output 3\n"),
        (CTRL_O, "No further output is folded"),
        (LEAVE, "Resume this session"),
    ]
    shown = await press(db, tmp_path, with_tools(), steps)
    first, second = shown.split("── /output 2")[1].split("── /output 3")
    assert "".join(f"  │ {number}\n" for number in range(200, 221)) in first
    assert "".join(f"  │ {number}\n" for number in range(100, 121)) in second


async def test_ctrl_o_opens_folded_reasoning(db: SessionDB, tmp_path: Path) -> None:
    steps = [
        (f"think{ENTER}", "of it\n"),
        (CTRL_O, "── /reasoning 1\nreasoning\n  │ one\n  │ two\n  │ three\n"),
        (CTRL_O, "No further output is folded"),
        (LEAVE, "Resume this session"),
    ]
    await press(db, tmp_path, PARTS, steps)


# The edits


async def test_diff_shows_every_edit_by_file(typing: Typing, tmp_path: Path) -> None:
    shown = await typing(
        call("write_file", path="a.txt", content="one\ntwo\n"),
        call("patch", path="./a.txt", old_text="two", new_text="2"),
        call("patch", path="a.txt", old_text="nothing like it", new_text="x"),
        call("write_file", path="sub/b.txt", content="b\n"),
        call("terminal", command="echo c > c.txt"),
        call("terminal", command="echo never", folder="nowhere"),
        "/diff",
        parts=with_tools(),
    )
    diff = after(shown, "you said: done")
    assert diff.index("a.txt  +3 −1") < diff.index("  1. created · +2 −0") < diff.index("  │ +two")
    assert diff.index("  │ +two") < diff.index("  2. changed · +1 −1") < diff.index("  │ +2\n")
    assert diff.index("  │ +2\n") < diff.index("sub/b.txt  +1 −0") < diff.index("2 files, +4 −1")
    assert "nothing like it" not in diff
    assert "1 command also ran and may have changed files" in diff
    assert "git" not in diff


async def test_diff_of_a_path_a_name_a_folder_or_an_unedited_file(typing: Typing, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    shown = await typing(
        call("write_file", path="sub/b.txt", content="b\n"),
        call("write_file", path="a.txt", content="a\n"),
        *("/diff sub/b.txt", "/diff b.txt", "/diff sub", f"/diff {tmp_path}/sub/b.txt", "/diff c.txt"),
        parts=with_tools(),
    )
    assert shown.count("1 file, +1 −0") == 4
    told = after(shown, "1 file, +1 −0")
    assert "'c.txt' was not edited in this conversation. These files were:\n  sub/b.txt\n  a.txt\n" in told
    assert "This is a git repository: `git status` and `git diff` show all changes." in told


async def test_diff_includes_edits_before_a_compression_and_undone_edits(
    db: SessionDB, typing: Typing
) -> None:
    parts = with_tools()._replace(make_compressor=lambda record, _working: Compressing(record))
    await typing(
        "/title long",
        call("write_file", path="a.txt", content="a\n"),
        "/compress",
        call("write_file", path="b.txt", content="b\n"),
        "/undo",
        parts=parts,
        # undoes the exchange, keeps the file and clears the prompt
        keys=f"{SEEN}y{SEEN}{INTERRUPT}{INTERRUPT}",
    )
    tip = db.tip("long")
    assert tip is not None
    shown = await typing("/diff", resuming=tip)
    assert "a.txt  +1 −0\n  1. created · +1 −0\n  │ +a\n" in shown
    assert "1. created · +1 −0 · the exchange was taken back" in shown
    assert "2 files, +2 −0" in shown


async def test_the_edits_of_an_incognito_conversation_are_in_memory(typing: Typing, tmp_path: Path) -> None:
    shown = await typing(
        call("write_file", path="a.txt", content="a\n"),
        "/diff",
        "/output",
        parts=with_tools(),
        incognito=True,
    )
    assert "1 file, +1 −0" in shown
    assert (tmp_path / "a.txt").read_text() == "a\n"


async def test_a_store_that_is_thinned_says_what_is_missing(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"old {'x' * 50} {number}\n" for number in range(90)))
    new = "".join(f"new {'x' * 50} {number}\n" for number in range(90))
    await typing("/title thin", call("write_file", path="a.txt", content=new), parts=with_tools())
    tip = db.tip("thin")
    assert tip is not None
    cut = await typing("/diff", resuming=tip)
    assert "a.txt  +90 −90" in cut
    assert "only a part of the difference is stored" in cut
    assert f"  │ new {'x' * 50} 89\n" in await typing("/diff a.txt", resuming=tip)
    assert db.thin(older_than_days=0, larger_than=100).messages == 1
    thinned = await typing("/output", "/diff", resuming=tip)
    assert "the middle of this output was dropped from the store (`hermes sessions thin`)" in thinned
    assert "a.txt  +90 −90" in thinned
    assert "only a part of the difference is stored" in thinned


async def test_many_edits_are_shown_up_to_a_bound_and_named_beyond_it(typing: Typing) -> None:
    content = "".join(f"line {number}\n" for number in range(300))
    shown = await typing(
        call("write_file", path="a.txt", content=content),
        call("write_file", path="b.txt", content=content),
        "/diff",
        "/diff b.txt",
        parts=with_tools(),
    )
    first, _, second = after(shown, "you said: done").partition("2 files, +600 −0")
    assert first.count("│ +line 299\n") == 1
    assert "  1. created · +300 −0 (/diff b.txt shows it)" in first
    assert second.count("│ +line 299\n") == 1


@pytest.mark.parametrize("command", ["/output", "/diff"])
async def test_a_call_cannot_send_control_sequences_to_the_terminal(typing: Typing, command: str) -> None:
    evil = "x\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    shown = await typing(
        call("write_file", path="a\u202e.txt", content=evil),
        call("terminal", command=f"printf '{evil}'"),
        command,
        parts=with_tools(),
    )
    assert not re.search("[\x1b\x9b\x07\u202e]", shown)
    assert "\\x1b]0;owned\\x07" in shown
