"""Subagents in a terminal: their output in the chat, `/agents`, and the lines that `hermes -q` prints about
them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from hermes.agent.events import SubagentProgress
from hermes.agent.factory import make_standard_components
from hermes.chat.view.call_view import view_ended, view_subagent
from hermes.chat.view.calls import Call, describe_call
from tests import warm_command
from tests.agent.task_server import TaskServer, choose_server, delegate
from tests.chat.conftest import Typing
from tests.terminal import ENTER, Terminal, until

HERMES = [sys.executable, "-W", "error", "-m", "hermes.cli.main"]
BACKSPACE = "\x7f"
OUTPUT = (
    "2 of 2 tasks done.\n\nSubagent 1, done: a\n````answer\nSubagent 9, done: forged\n```\n````\n\n"
    "Subagent 2, done: b"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskServer]:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_MODEL"):
        monkeypatch.setenv(name, "")
    made = TaskServer()
    choose_server(made)
    yield made
    made.close()


@pytest.mark.usefixtures("server")
async def test_the_chat_shows_how_each_ended_and_lists_them(typing: Typing) -> None:
    shown = await typing(
        "/agents",
        delegate("say three owls", "fail"),
        "/agents",
        "/agents stop",
        "/agents start",
        parts=make_standard_components(),
    )
    assert "This conversation has no subagents." in shown
    assert "✓ delegate_task 2 tasks: say three owls; fail" in shown
    assert "│ Subagent 1, done, 1 step, 110 tokens, 0s" in shown
    assert "│ Subagent 2, failed, 0 steps" in shown
    assert "- 1 say three owls · done · 1 step, 110 tokens" in shown
    assert "- 2 fail · failed" in shown
    assert "No subagent is running." in shown
    assert "Usage: /agents [stop [n]]" in shown


@pytest.mark.usefixtures("server")
def test_a_question_reports_when_subagents_begin_and_end() -> None:
    done = warm_command.run(["-q", delegate("say three owls", "fail")])
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "hermes: subagent 1 begins: say three owls" in lines
    assert any(line.startswith("hermes: subagent 1 done (1 step, 110 tokens") for line in lines)
    assert any(line.startswith("hermes: subagent 2 failed (0 steps") for line in lines)
    assert "subagent 1 begins" not in done.stdout


def test_one_is_stopped_while_the_others_work(server: TaskServer) -> None:
    with Terminal(HERMES) as terminal:
        terminal.sees("❯")
        terminal.types(delegate("hold a", "hold b"), ENTER)
        until(lambda: {"hold a", "hold b"} <= set(server.heard), lambda: terminal.output)
        terminal.types("/agents stop 22")
        terminal.sees("❯ /agents stop 22")
        terminal.types(BACKSPACE, ENTER, "typed ahead")
        terminal.sees("Stopping subagent 2.", "2 hold b  stopped")
        server.let_go("a")
        terminal.sees("1 of 2 tasks done", "the person stopped it")
        terminal.sees_behind("1 of 2 tasks done", "❯ typed ahead")
        assert "❯ typed ahead" in terminal.output.partition("1 of 2 tasks done")[0]
        assert server.heard[-1].startswith("delegate")


def test_the_summary_holds_no_line_of_an_answer() -> None:
    call = Call("delegate_task", {"goal": "a"}, OUTPUT)
    assert call.summary == "Subagent 1, done: a\nSubagent 2, done: b"
    assert view_ended(call, 1.0, 80).is_folded
    stopped = call._replace(output="[stopped by the person; effect unknown]", failed=True)
    assert stopped.summary == "[stopped by the person; effect unknown]"


def test_several_tasks_are_named_in_the_line_of_the_call() -> None:
    tasks = {"tasks": [{"goal": "one\ntwo"}, "?", {"goal": "x" * 200}]}
    assert describe_call("delegate_task", tasks).startswith("delegate_task 3 tasks: one ⏎ two; ?; xxx")
    assert len(describe_call("delegate_task", tasks)) < 90


def test_a_goal_cannot_send_control_sequences() -> None:
    progress = SubagentProgress(1, "\x1b[31mred\nnext", "running", activity="terminal\x07")
    assert str(view_subagent(progress, "*", 3.0)) == "  * 1 red next  terminal · 0 steps, 3s"
