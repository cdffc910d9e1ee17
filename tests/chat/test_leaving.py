"""Leaving the chat while background processes of the agent are running."""

from __future__ import annotations

from tests.chat.conftest import LEAVE, SEEN, Typing
from tests.chat.tool_chat import call, with_tools

START = call("terminal", command="sleep 100", background=True)


async def test_running_processes_are_named_and_leaving_is_asked(typing: Typing) -> None:
    shown = await typing(START, keys=f"{LEAVE}{SEEN}nhello\r{LEAVE}{SEEN}y", parts=with_tools())
    asked = "1 background process is running and will end with the chat:\n  sleep 100"
    assert shown.count(asked) == 2
    assert "you said" in shown.partition(asked)[2]  # after "no", the chat continues
    assert "Ended 1 background process." in shown


async def test_quit_asks_too(typing: Typing) -> None:
    shown = await typing(START, "/quit", keys=SEEN + "y", parts=with_tools())
    assert shown.count("will end with the chat") == 1
    assert "Ended 1 background process." in shown


async def test_without_running_processes_nothing_is_asked(typing: Typing) -> None:
    shown = await typing(call("terminal", command="true"), parts=with_tools())
    assert "background process" not in shown.replace("background processes", "")
    assert "Ended" not in shown
