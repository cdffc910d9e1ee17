"""The tools `terminal` and `process` run real processes within limits. The processes end when nothing needs
them any more.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.agent.approvals.request import DENY, Decision, Scope
from hermes.agent.sandbox.sandbox import Sandbox
from hermes.agent.tool import ToolContext, ToolFailed, find_conversation_root
from hermes.agent.tools.access import Access
from hermes.agent.tools.background_processes import MOST_AT_ONCE, BackgroundProcesses
from hermes.agent.tools.process import Process
from hermes.agent.tools.running_command import Output
from hermes.agent.tools.terminal import Terminal
from hermes_state import SessionDB
from tests.agent.tools.conftest import Person
from tests.agent.tools.processes import eventually, runs
from tests.sandboxes import require_sandbox


@pytest.fixture
def terminal(processes: BackgroundProcesses, access: Access) -> Terminal:
    return Terminal(processes, access)


# ---------------------------------------------------------------- in the foreground


async def test_output_and_exit_code_are_returned(
    terminal: Terminal, access: Access, context: ToolContext
) -> None:
    assert await terminal.run({"command": "echo out; echo err >&2"}, context) == "out\nerr\n[exit code 0]"
    assert await terminal.run({"command": "exit 3"}, context) == "[exit code 3]"
    # reported in the form that a shell uses
    is_bubblewrap = access.policy_of(context).sandbox.kind == "bubblewrap"
    ended = "[exit code 143, SIGTERM]" if is_bubblewrap else "[ended by SIGTERM]"
    assert await terminal.run({"command": "kill -TERM $$"}, context) == ended


async def test_a_command_runs_in_the_working_directory_or_in_a_named_folder(
    terminal: Terminal, context: ToolContext
) -> None:
    (context.cwd / "sub").mkdir()
    assert (await terminal.run({"command": "pwd"}, context)).startswith(str(context.cwd))
    assert (await terminal.run({"command": "pwd", "folder": "sub"}, context)).startswith(
        f"{context.cwd}/sub\n"
    )
    with pytest.raises(ToolFailed, match="there is no folder"):
        await terminal.run({"command": "pwd", "folder": "nowhere"}, context)


async def test_the_folder_of_a_command_is_part_of_the_question(
    terminal: Terminal, context: ToolContext, person: Person
) -> None:
    """A person who is asked to approve `rm -rf *` must see the folder."""
    elsewhere = Path.home() / "else where"
    elsewhere.mkdir(parents=True)
    given = {"command": "touch made", "folder": str(elsewhere), "outside": "it is a test"}
    await terminal.run(given, context)
    assert [request.subject for request in person.asked] == [f"cd '{elsewhere}'\ntouch made"]
    assert (elsewhere / "made").exists()


async def test_a_command_allowed_here_is_asked_about_in_another_folder(
    terminal: Terminal, context: ToolContext, person: Person
) -> None:
    require_sandbox(context.cwd)
    (context.cwd / "sub").mkdir()
    person.says = Decision(True, Scope.COMMAND)
    for folder in (".", ".", "sub", "sub"):
        await terminal.run({"command": "touch made", "folder": folder}, context)
    assert [request.subject for request in person.asked] == [
        "touch made",
        f"cd {context.cwd}/sub\ntouch made",
    ]


class AccessWithoutSandbox(Access):
    def choose_sandbox(self, folder: Path, store: Path) -> Sandbox:
        return super().choose_sandbox(folder, store)._replace(kind=None, reason="there is none")


@pytest.mark.parametrize("command", ["cat id_rsa", "ls", "cat < id_rsa"])
async def test_without_a_sandbox_a_folder_out_of_view_is_asked_about(
    context: ToolContext, processes: BackgroundProcesses, person: Person, command: str
) -> None:
    keys = Path.home() / ".ssh"
    keys.mkdir(parents=True)
    (keys / "id_rsa").write_text("hunter2")
    person.says = DENY
    access = AccessWithoutSandbox()
    try:
        with pytest.raises(ToolFailed, match="was not allowed"):
            await Terminal(processes, access).run({"command": command, "folder": str(keys)}, context)
    finally:
        access.close()
    assert [request.subject for request in person.asked] == [f"cd {keys}\n{command}"]


async def test_a_command_has_no_keyboard(terminal: Terminal, context: ToolContext) -> None:
    assert await terminal.run({"command": "read x; echo got:$x"}, context) == "got:\n[exit code 0]"


async def test_the_keys_of_the_agent_are_not_handed_to_commands(
    terminal: Terminal, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_STORE_KEY", "k1")
    monkeypatch.setenv("OPENAI_API_KEY", "k2")
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "k3")
    monkeypatch.setenv("API_SERVER_KEY", "k4")
    monkeypatch.setenv("A_KEY_NOBODY_THOUGHT_OF", "k5")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    output = await terminal.run({"command": "env"}, context)
    assert not re.search(r"=k\d$", output, re.MULTILINE)
    assert "LC_TIME=C.UTF-8\n" in output


async def test_control_sequences_are_stripped_and_progress_bars_keep_their_last_state(
    terminal: Terminal, context: ToolContext
) -> None:
    output = await terminal.run(
        {"command": r"printf '\033[31mred\033[0m\033]0;title\007\n10%%\r50%%\r100%%\r\ndone\n'"}, context
    )
    assert output == "red\n100%\ndone\n[exit code 0]"


async def test_long_output_keeps_its_ends_and_says_what_was_left_out(
    terminal: Terminal, context: ToolContext
) -> None:
    output = await terminal.run({"command": "seq 1 200000"}, context)
    assert output.startswith("1\n2\n3\n")
    assert output.endswith("199999\n200000\n[exit code 0]")
    (left_out,) = re.findall(r"\[\.\.\. ([\d,]+) bytes left out \.\.\.\]", output)
    assert len(output) < 50_000
    assert int(left_out.replace(",", "")) == 1_288_895 - 40_000


async def test_binary_output_is_shown_with_replacement_characters(
    terminal: Terminal, context: ToolContext
) -> None:
    assert (await terminal.run({"command": r"printf 'a\377\000b'"}, context)).startswith("a�b")


async def test_at_its_timeout_a_command_is_ended_with_all_that_it_started(
    terminal: Terminal, context: ToolContext, mark: str
) -> None:
    output = await terminal.run(
        {"command": f"echo before; trap '' TERM; sleep {mark} & wait", "timeout": 1}, context
    )
    assert output == "before\n[not finished within 1 seconds; the command and its child processes were ended]"
    assert not runs(mark)


async def test_stopping_the_turn_ends_the_command(
    terminal: Terminal, context: ToolContext, mark: str
) -> None:
    running = asyncio.create_task(terminal.run({"command": f"sleep {mark}"}, context))
    assert await eventually(lambda: runs(mark))
    context.stop.set()
    assert "the person stopped the turn" in await running
    assert not runs(mark)


async def test_a_cancelled_call_ends_the_command(terminal: Terminal, context: ToolContext, mark: str) -> None:
    running = asyncio.create_task(terminal.run({"command": f"sleep {mark} & wait"}, context))
    assert await eventually(lambda: runs(mark))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await eventually(lambda: not runs(mark))


@pytest.mark.parametrize("outside", [{}, {"outside": "everything"}], ids=["sandbox", "outside"])
@pytest.mark.parametrize(
    "way", ["sleep {} &", "setsid nohup sleep {} > /dev/null 2>&1 &", "(setsid sleep {} &)"]
)
async def test_child_processes_end_with_the_command(
    terminal: Terminal, context: ToolContext, mark: str, way: str, outside: dict[str, str]
) -> None:
    output = await terminal.run({"command": f"{way.format(mark)}\necho started", **outside}, context)
    assert output == "started\n[exit code 0]"
    assert await eventually(lambda: not runs(mark))


# ---------------------------------------------------------------- in the background


async def test_a_background_process_is_polled_waited_for_and_listed(
    terminal: Terminal, processes: BackgroundProcesses, context: ToolContext
) -> None:
    process = Process(processes)
    fifo = context.cwd / "go"
    os.mkfifo(fifo)
    output = await terminal.run({"command": f"echo one; cat {fifo}; echo three", "background": True}, context)
    assert re.fullmatch(r"started in the background as p1 \(process \d+\)", output)
    assert await eventually(lambda: processes.get_process("here", "p1").running.output.total > 0)
    assert (await process.run({"action": "poll", "id": "p1"}, context)).endswith("\none")
    assert (await process.run({"action": "poll", "id": "p1"}, context)).endswith("(nothing new was printed)")
    assert re.match(r"p1  running  \d+ s  echo one;", await process.run({"action": "list"}, context))
    assert (await process.run({"action": "wait", "id": "p1", "timeout": 1}, context)).startswith(
        "p1  running"
    )
    fifo.write_text("two\n")
    assert (await process.run({"action": "wait", "id": "p1"}, context)).endswith("\ntwo\nthree")
    assert (await process.run({"action": "list"}, context)).startswith("p1  exit code 0")


async def test_a_background_process_is_killed_with_its_children(
    terminal: Terminal, processes: BackgroundProcesses, context: ToolContext, mark: str
) -> None:
    await terminal.run({"command": f"setsid sleep {mark} & wait", "background": True}, context)
    assert await eventually(lambda: runs(mark))
    output = await Process(processes).run({"action": "kill", "id": "p1"}, context)
    assert "running" not in output
    assert await eventually(lambda: not runs(mark))


async def test_processes_belong_to_their_conversation(
    terminal: Terminal, processes: BackgroundProcesses, context: ToolContext, db: SessionDB
) -> None:
    await terminal.run({"command": "sleep 987", "background": True}, context)
    db.create_session("other", "cli")
    elsewhere = context._replace(session_id="other")
    with pytest.raises(ToolFailed, match="there is no background process 'p1'; there are none"):
        await Process(processes).run({"action": "kill", "id": "p1"}, elsewhere)
    assert processes.list_for(find_conversation_root(db, "other")) == []
    db.append_message("here", "user", "hello")
    later = db.begin_continuation("here", "what was said")
    assert [one.running.over for one in processes.list_for(find_conversation_root(db, later))] == [False]
    assert "p1" in await Process(processes).run({"action": "list"}, context._replace(session_id=later))


async def test_the_number_of_background_processes_is_limited(
    terminal: Terminal, context: ToolContext
) -> None:
    for _ in range(MOST_AT_ONCE):
        await terminal.run({"command": "sleep 987", "background": True}, context)
    with pytest.raises(ToolFailed, match="16 background processes are running"):
        await terminal.run({"command": "sleep 987", "background": True}, context)


async def test_a_process_must_be_named(processes: BackgroundProcesses, context: ToolContext) -> None:
    with pytest.raises(ToolFailed, match="id is missing"):
        await Process(processes).run({"action": "poll"}, context)
    assert "no background processes" in await Process(processes).run({"action": "list"}, context)


PROGRAM = """if True:
    import asyncio, os, signal, sys
    from pathlib import Path
    from hermes.agent.approvals.request import ALLOW_ONCE
    from hermes.agent.tool import ToolContext
    from hermes.agent.tools.access import Access, AccessSettings
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.agent.tools.terminal import Terminal
    from hermes_state import SessionDB

    async def approve(request):
        return ALLOW_ONCE

    async def main():
        with SessionDB() as db:
            db.create_session("here", "cli")
            context = ToolContext(db, "here", Path("."), approve, asyncio.Event())
            processes = BackgroundProcesses()
            terminal = Terminal(processes, Access(AccessSettings(mode=sys.argv[2])))
            command = f"echo ready; trap '' TERM; setsid sleep {sys.argv[1]}; sleep 1"
            print(await terminal.run({"command": command, "background": True}, context))
            while not processes.list_for("here")[0].running.output.total:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("ending", ["ended", "killed"])
@pytest.mark.parametrize("mode", ["ask", "off"])
async def test_background_processes_end_with_the_program(
    tmp_path: Path, mark: str, mode: str, ending: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, mark, mode, ending],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=work,
    )
    assert done.returncode == (0 if ending == "ended" else -signal.SIGKILL), done.stderr
    assert done.stdout.startswith("started in the background")
    assert await eventually(lambda: not runs(mark))


def test_polled_output_is_returned_once_and_in_order() -> None:
    output = Output(0, 100)
    place, result = 0, ""
    for number in range(30):
        output.add(f"{number:03}\n".encode())
        text, place = output.since(place)
        result += f"{text}\n"
    assert result == "".join(f"{number:03}\n" for number in range(30))
    output.add(b"x" * 1_000)
    text, place = output.since(place)
    assert text == f"[... 900 bytes left out ...]\n{'x' * 100}"
    assert output.since(place) == ("", place)
