"""Lists of conversations and models from which a person chooses in the chat. Notices do not disturb an open
list.
"""

from __future__ import annotations

import asyncio
import io

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console

from hermes.agent.components import AgentComponents, ListedModels, ModelChoice
from hermes.agent.models.endpoints import find_similar, is_listed
from hermes.agent.models.model import BadRequest
from hermes.chat import busy_notice
from hermes.chat.commands.reply_views import format_choices
from hermes.chat.input.prompt_line import PromptLine
from hermes.chat.input.question import Option
from hermes.chat.view.screen import Screen
from hermes_state import SessionDB
from tests.chat.conftest import DOWN, ENTER, SEEN, Typing
from tests.chat.echo import PARTS

ESCAPE = "\x1b"


def fill(db: SessionDB, count: int) -> None:
    """Store `count` conversations. The one with the highest number is the newest."""
    for number in range(count):
        db.create_session(f"id_{number:02}", "cli", started_at=1000.0 + number)
        db.append_message(f"id_{number:02}", "user", f"question {number}", timestamp=1000.0 + number)
        db.end_session(f"id_{number:02}", "cli_close")


@pytest.mark.parametrize("command", ["/resume", "/sessions"])
@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (f"{SEEN}{ENTER}", "id_11"),
        (f"{SEEN}3", "id_09"),
        (f"{SEEN}{DOWN}{ENTER}", "id_10"),
        (f"{SEEN}0", "id_02"),
        (f"{SEEN}o{SEEN}2", "id_00"),
    ],
)
async def test_a_conversation_is_chosen_from_a_list(
    db: SessionDB, typing: Typing, command: str, keys: str, chosen: str
) -> None:
    fill(db, 12)
    shown = await typing(command, keys=f"{keys}/status{ENTER}")
    assert f"↻ Resumed session {chosen} " in shown


async def test_cancelling_a_list_keeps_the_conversation_and_its_numbers_can_be_used(
    db: SessionDB, typing: Typing
) -> None:
    fill(db, 3)
    shown = await typing("mine", "/resume", keys=f"{SEEN}{ESCAPE}")
    assert "Resumed" not in shown
    shown = await typing("/sessions question", "/resume 2")
    assert "↻ Resumed session id_01 " in shown


async def test_without_conversations_there_is_no_list(typing: Typing) -> None:
    assert "There are no conversations yet." in await typing("/resume", "/sessions")


@pytest.mark.parametrize("width", [40, 80, 160])
def test_each_choice_is_one_line_with_the_beginning_of_its_name(width: int) -> None:
    rows = [
        ("A title that is rather long, longer than forty cells", "3 hours ago", "20261101_090000_abcdef")
    ] * 2
    for line in format_choices(rows, width):
        assert len(f"   > 10. {line}") <= width
        assert line.startswith("A title that")
        assert "3 hours ago" in line
        assert ("20261101" in line) == (width >= 80)


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_table_keeps_its_numbers_in_a_narrow_window(width: int) -> None:
    written = io.StringIO()
    screen = Screen(Console(file=written, width=width))
    rows = [("12", "a title that is rather long " * 3, "3 hours ago", "20261101_090000_abcdef")]
    screen.print_table(("", "Title", "Last active", "Id"), rows, flexible=1, optional=(3, 2))
    screen.print_table(
        ("Model", "Calls", "Input", "Output", "Cost"),
        [("provider/a-long-name", "12", "123,456", "7,890", "$1.23")],
    )
    text = written.getvalue()
    assert all(part in text for part in ("12  a title", "12     123,456  7,890   $1.23"))
    assert ("20261101_090000_abcdef" in text) == (width > 40)
    assert max(map(len, text.splitlines())) <= width


# Models


def with_models(*names: str, problem: str = "") -> AgentComponents:
    def list_models(_wish: ModelChoice) -> ListedModels:
        if problem:
            raise BadRequest(problem)
        return ListedModels("http://models.example/v1", names)

    return PARTS._replace(list_models=list_models)


async def test_a_model_that_the_endpoint_has_is_chosen(db: SessionDB, typing: Typing) -> None:
    shown = await typing("hello", "/model second", parts=with_models("first", "second"))
    assert "Continuing with second." in shown
    assert "checked" not in shown
    assert db.search_sessions()[0]["model"] == "second"


@pytest.mark.parametrize(
    ("keys", "model", "told"),
    [
        (ESCAPE, "echo", "lists no model secnod. Did you mean second? The model stays as it was."),
        (ENTER, "echo", "The model stays as it was."),
        (f"{DOWN}{ENTER}", "second", "Continuing with second."),
        (f"{DOWN * 2}{ENTER}", "secnod", "Continuing with secnod."),
    ],
)
async def test_an_unlisted_model_is_reported_with_similar_names(
    db: SessionDB, typing: Typing, keys: str, model: str, told: str
) -> None:
    shown = await typing("hello", "/model secnod", keys=f"{SEEN}{keys}", parts=with_models("first", "second"))
    assert told in " ".join(shown.split())
    assert db.search_sessions()[0]["model"] == model


@pytest.mark.parametrize(
    ("downs", "model"), [(0, "echo"), (1, "first-0"), (9, "first-8"), (10, "nothing-like-it")]
)
async def test_without_a_similar_name_the_models_of_the_endpoint_are_offered(
    db: SessionDB, typing: Typing, downs: int, model: str
) -> None:
    names = [f"first-{number}" for number in range(9)]
    parts = with_models("echo", *names, "last")  # the current model is offered only once, as the default
    await typing("hello", "/model nothing-like-it", keys=f"{SEEN}{DOWN * downs}{ENTER}", parts=parts)
    assert db.search_sessions()[0]["model"] == model


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            with_models(problem="http://x.example does not list its models as JSON"),
            "does not list its models as JSON",
        ),
        (with_models(), "http://models.example/v1 lists no models"),
    ],
)
async def test_a_name_that_cannot_be_checked_is_accepted_with_a_notice(
    typing: Typing, parts: AgentComponents, why: str
) -> None:
    shown = " ".join((await typing("/model any", parts=parts)).split())
    assert "Continuing with any. The name could not be checked: " in shown
    assert why in shown


def test_aliases_are_known_and_similar_names_begin_with_those_that_contain_the_name() -> None:
    names = [
        "claude-sonnet-4-5-20250929",
        "llama3:latest",
        "openai/gpt-4o",
        "openai/gpt-4o-mini",
        "gpt-4.1-2025-04-14",
    ]
    for known in ("claude-sonnet-4-5", "claude-sonnet-4-5-latest", "llama3", "openai/gpt-4o", "gpt-4.1"):
        assert is_listed(known, names)
    for unknown in ("gpt-4o", "claude-sonnet", "llama", "gpt-4"):
        assert not is_listed(unknown, names)
    assert find_similar("gpt-4o", names)[:2] == ["openai/gpt-4o", "openai/gpt-4o-mini"]
    assert find_similar("lama3", names)[0] == "llama3:latest"
    assert find_similar("zzz", names) == []


# Notices


async def test_a_notice_is_printed_above_an_open_question() -> None:
    written = io.StringIO()
    output = Vt100_Output(written, lambda: Size(rows=30, columns=80), term="xterm")
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=output):
        prompt_line = PromptLine(DummyCompleter(), lambda: "", incognito=True, keyboard=pipe, output=output)
        options: list[Option[str | None]] = [Option(name, name) for name in ("first", "second")]
        asking = asyncio.create_task(prompt_line.choose("Which one?", options))
        while "2. second" not in written.getvalue():
            await asyncio.sleep(0)
        await prompt_line.print_above(lambda: print("THE NOTICE", file=written))
        async with asyncio.timeout(10):
            # the question is drawn again
            while "2. second" not in written.getvalue().partition("THE NOTICE")[2]:
                await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_no_notice_of_a_busy_store_appears_while_a_question_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(busy_notice, "BUSY_S", 0.01)
    shown = asyncio.Event()

    async def show() -> None:
        shown.set()

    notice = busy_notice.BusyNotice(show)
    with notice.watch():
        with notice.pause(), pytest.raises(TimeoutError):
            await asyncio.wait_for(shown.wait(), 0.1)
        await shown.wait()  # the store is busy after the question
    shown.clear()
    with notice.pause(), pytest.raises(TimeoutError):
        await asyncio.wait_for(shown.wait(), 0.1)
