"""The input of the chat: long messages, attached files, the history, and commands for the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from hermes.chat.input.completion import ChatCompleter
from hermes_state import SessionDB
from tests.chat.conftest import ENTER, INTERRUPT, NEW_LINE, SEEN, Typing
from tests.chat.echo import PARTS, EchoModel, make_roomy

Row = dict[str, Any]
LONG = "\n".join(["word " * 20] * 10_000)
UP, SEARCH, BACKSPACE = "\x1b[A", "\x12", "\x7f"


def sessions(db: SessionDB) -> list[Row]:
    return db.search_sessions()


def said(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id) if row["role"] == "user"]


def last_said(db: SessionDB) -> list[Any]:
    """Return the messages of the latest conversation."""
    return said(db, sessions(db)[0]["id"])


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


async def test_a_message_that_is_too_large_is_not_sent_and_stays(db: SessionDB, typing: Typing) -> None:
    # The first Enter after a letter is ignored. The second question is about the message that Enter sends
    # again.
    again = f"{SEEN}e{ENTER}{ENTER}{SEEN}e{INTERRUPT}"
    shown = await typing(f"see {paste(LONG)} and tell", keys=again, parts=make_roomy(100_000))
    assert "the message is too large: about 252,5" in shown
    assert "echo takes 98,9" in shown
    assert sessions(db) == []
    await typing(
        f"see {paste(LONG)} and tell", keys=f"{SEEN}e{INTERRUPT}hello{ENTER}", parts=make_roomy(100_000)
    )
    assert last_said(db) == ["hello"]


async def test_a_message_that_is_too_large_is_sent_as_a_file_or_shortened(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    shown = await typing(f"see {paste(LONG)} and tell", keys=f"{SEEN}f", parts=make_roomy(100_000))
    (file,) = tmp_path.glob("pasted_*.txt")
    assert file.read_text() == LONG
    assert f"Wrote {file} (1.0 MB)." in "".join(shown.split("\n"))
    size = "1.0 MB"
    assert last_said(db) == [f"see [the text is in the file {file.name}, {size}: read it in parts] and tell"]
    await typing(f"see {paste(LONG)} and tell", keys=f"{SEEN}s", parts=make_roomy(100_000))
    (short,) = last_said(db)
    assert short.startswith("see word word")
    assert short.endswith("word word  and tell")
    assert "characters left out ...]" in short
    assert 250_000 < len(short) < 350_000
    await typing(f"see {paste(LONG)} and tell", keys=f"{SEEN}s", parts=make_roomy(100_000), incognito=True)
    assert len(list(tmp_path.glob("pasted_*.txt"))) == 1


async def test_a_paste_comes_back_whole_from_the_history(db: SessionDB, typing: Typing) -> None:
    await typing(f"see {paste(LONG)} and tell", parts=make_roomy(1_000_000))
    assert last_said(db) == [f"see {LONG} and tell"]
    await typing(f"{UP} again", parts=make_roomy(1_000_000))
    assert last_said(db) == [f"see {LONG} and tell again"]


async def test_leaving_a_search_keeps_what_was_typed(db: SessionDB, typing: Typing) -> None:
    await typing("earlier one", "earlier two")
    await typing(f"half a thought{SEARCH}ear{SEARCH}{SEARCH}{INTERRUPT} and the rest")
    assert last_said(db) == ["half a thought and the rest"]
    await typing(f"{SEARCH}one{ENTER}{ENTER}{INTERRUPT}")
    assert last_said(db) == ["earlier one"]


class Blind(EchoModel):
    takes_pictures = False


async def test_a_file_is_confirmed_and_a_picture_needs_a_model_that_takes_it(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "notes.txt").write_text("milk")
    shown = await typing("see @cat.png and @notes.txt")
    assert "Attached cat.png (PNG picture, 8 bytes)." in shown
    assert "Attached notes.txt (1 line, 4 bytes)." in shown
    text, picture = db.get_messages(sessions(db)[0]["id"])[0]["content"]
    assert text["text"].endswith("[picture cat.png]\n\n[file notes.txt]\n```\nmilk\n```")
    assert picture["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    blind = PARTS._replace(make_model=lambda _wish: Blind())
    shown = " ".join((await typing("see @cat.png", f"{BACKSPACE * 8}it", parts=blind)).split())
    assert "echo takes no pictures, so the message was not sent." in shown
    assert last_said(db) == ["see it"]  # the text is in the input again


async def test_a_shell_command_runs_and_is_not_sent_to_the_model(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "here").touch()
    shown = await typing("! ls; exit 3", "!echo $((20+1))", " !not a command", "![x](y)", "!")
    assert "here\nhome\nexit code 3 · " in shown
    assert "21\nexit code 0 · " in shown
    assert "! command runs a command in your shell." in shown
    assert last_said(db) == ["!not a command", "![x](y)"]


async def test_text_that_is_pasted_or_has_several_lines_is_not_run(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    lines = "! touch made\ntouch made"
    long = "!touch made\n" * 20
    shown = await typing(paste("!touch made"), paste(lines), paste(long), f"! touch made{NEW_LINE}touch made")
    assert last_said(db) == ["!touch made", lines, long.strip(), lines]
    assert not (tmp_path / "made").exists()
    assert shown.count("Pasted text is sent as a message.") == 1  # only the first looks like a command
    await typing(f"! touch {paste('made')}")  # the person typed the mark
    assert (tmp_path / "made").exists()
    await typing(f"{paste('hello')}{INTERRUPT}! rm made")  # the paste was cleared
    assert not (tmp_path / "made").exists()


async def test_a_message_in_the_input_again_is_not_run(db: SessionDB, typing: Typing, tmp_path: Path) -> None:
    await typing("/undo", question="! touch made", keys=f"{SEEN}y again{ENTER}")
    assert last_said(db) == ["! touch made again"]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("question", ["! touch made", "!! touch made", "!touch made", "/title made"])
async def test_a_question_of_the_command_line_is_always_a_message(
    db: SessionDB, typing: Typing, tmp_path: Path, question: str
) -> None:
    assert f"you said: {question}" in await typing(question=question)
    assert last_said(db) == [question]
    assert not (tmp_path / "made").exists()
    assert sessions(db)[0]["title"] != "made"


async def test_the_model_gets_an_output_only_on_request(db: SessionDB, typing: Typing) -> None:
    shown = await typing("!! printf '```\\n'; echo two", "! echo private", "/status", "why?", "and now?")
    assert "The model gets this output (8 bytes) with your next message." in shown
    assert last_said(db) == [
        "why?\n\n[output of printf '```\\n'; echo two, exit code 0]\n````\n```\ntwo\n````",
        "and now?",
    ]


async def test_undo_brings_back_the_text_without_the_files(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("milk")
    await typing("see @notes.txt", "/undo", keys=f"{SEEN}y again{ENTER}")
    assert last_said(db) == ["see @notes.txt again\n\n[file notes.txt]\n```\nmilk\n```"]


async def test_a_file_that_pasted_text_or_the_question_mentions_is_not_attached(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("secret")
    told = "Not attached: @key. A file is attached only if you type its name here."
    for shown in (
        await typing(paste("@ann wrote: see @key please")),
        await typing(f"sum up {paste(f'{LONG} @key')}", parts=make_roomy(1_000_000)),
        await typing(question="see @key please"),
    ):
        assert told in shown
        assert "is not a file" not in shown
        (sent,) = last_said(db)
        assert "secret" not in sent
    await typing(f"@{paste('key')} it is, and @key{paste(' as he calls @key')}")
    assert last_said(db)[0].endswith("[file key]\n```\nsecret\n```")


async def test_pasted_text_that_could_not_be_sent_is_still_pasted(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("secret")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    blind = PARTS._replace(make_model=lambda _wish: Blind())
    await typing(f"{paste('see @key')} @cat.png", BACKSPACE * 8, parts=blind)
    assert last_said(db) == ["see @key"]


@pytest.mark.parametrize("incognito", [False, True])
async def test_previews_show_what_was_typed_without_the_files(
    db: SessionDB, typing: Typing, tmp_path: Path, incognito: bool
) -> None:
    (tmp_path / "notes.txt").write_text("the milk")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    shown = await typing("see @notes.txt and @cat.png", "/history", incognito=incognito)
    assert "● You\n  see @notes.txt and @cat.png\n" in shown
    shown = await typing("see @notes.txt", "/undo", keys=f"{SEEN}y{INTERRUPT}", incognito=incognito)
    assert "“see @notes.txt”" in shown
    if not incognito:
        session = sessions(db)[1]["id"]
        (prompt,) = db.list_recent_user_messages(session)
        assert (
            prompt["preview"] == "see @notes.txt and @cat.png"
        )  # the question of /undo and the list of /rewind
        recap = await typing(resuming=session)
        assert "see @notes.txt and @cat.png" in recap
        assert "milk" not in recap


def test_files_are_completed_also_those_with_spaces(db: SessionDB, tmp_path: Path) -> None:
    for name in ("my notes.txt", "mine.txt", "sub/a b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    completer = ChatCompleter(db, (), lambda: tmp_path)

    def complete(line: str) -> list[str]:
        completions = completer.get_completions(Document(line), CompleteEvent())
        return [line[: len(line) + found.start_position] + found.text for found in completions]

    assert complete("see @m") == ["see @mine.txt", 'see @"my notes.txt"']
    assert complete('see @"my n') == ['see @"my notes.txt"']
    assert complete("@sub/") == ['@"sub/a b.txt"']
    assert complete('@"su') == ['@"sub/']
    assert complete("mail me@m") == []
