"""Prompts of an editor: streaming, tool calls with diffs, permissions, plans, modes, models and commands."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from acp import (
    RequestError,
    audio_block,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
)
from acp.schema import (
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    McpServerStdio,
    ToolCallProgress,
    UsageUpdate,
)

from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, Reply, calls, chunk, says, usage
from tests.interop.editor import COMMAND, NEVER, NO_TITLES, open_editor, use_model, write_settings

WITHOUT_SDK = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "acp" else find(name, *more)
from hermes.cli.main import main

sys.exit(main(["acp"]))
"""
"""A program in which Python does not find the SDK, as if it were not installed."""
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"pixel").decode()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def scripted(home: Path, model_server: ModelServer) -> ModelServer:
    """A scripted model that is asked for answers only."""
    write_settings(home, NO_TITLES)
    return model_server


def patch(path: str, old: str, new: str) -> Reply:
    return calls(("call_1", "patch", json.dumps({"path": path, "old_text": old, "new_text": new})))


async def test_reasoning_and_text_arrive_in_pieces_with_the_usage(
    workspace: Path, scripted: ModelServer
) -> None:
    used = usage(prompt_tokens=12, completion_tokens=3)
    thought = chunk({"reasoning_content": "let me think"})
    scripted.will(Reply([thought, *says("It is four.", used=used).steps]))
    async with open_editor(workspace, **use_model(scripted)) as editor:
        session_id = await editor.start()
        answer = await editor.connection.prompt(
            session_id=session_id,
            prompt=[{"type": "text", "text": "2 + 2?"}],  # type: ignore[list-item]
        )
        assert answer.stop_reason == "end_turn"
        assert answer.usage is not None
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (12, 3)
        assert editor.thoughts == "let me think"
        assert editor.text == "It is four."
        pieces = [update for _, update in editor.updates if getattr(update, "message_id", None)]
        assert len(pieces) == 3
        assert len({piece.message_id for piece in pieces}) == 1


async def test_an_edit_shows_its_diff_before_it_is_allowed_and_the_whole_texts_after_it(
    workspace: Path, scripted: ModelServer
) -> None:
    before = "".join(f"line {number}\n" for number in range(1, 21))
    (workspace / "app.py").write_text(before)
    scripted.will(patch("app.py", "line 10", "line ten"), says("Done."))
    async with open_editor(workspace, **use_model(scripted)) as editor:
        session_id = await editor.start()
        assert await editor.ask(session_id, "rename it") == "end_turn"
        (asked, options), path = editor.asked[0], str(workspace / "app.py")
        assert asked.tool_call_id == "call_1"
        assert options == ["allow", "always:edits", "reject"]
        assert asked.content is not None
        assert (asked.content[0].path, asked.content[0].type) == (path, "diff")
        assert asked.content[0].old_text == "\n".join(f"line {number}" for number in range(7, 14))
        assert "line ten" in asked.content[0].new_text
        (ended,) = editor.ended_calls
        assert (ended.tool_call_id, ended.status) == ("call_1", "completed")
        assert ended.content is not None
        diff = ended.content[0]
        assert (diff.path, diff.old_text, diff.new_text) == (
            path,
            before,
            before.replace("line 10", "line ten"),
        )
    assert "line ten" in (workspace / "app.py").read_text()


async def test_a_rejected_edit_changes_nothing_and_the_model_is_told(
    workspace: Path, scripted: ModelServer
) -> None:
    (workspace / "app.py").write_text("old")
    scripted.will(patch("app.py", "old", "new"), says("Then not."))
    async with open_editor(workspace, **use_model(scripted)) as editor:
        editor.answer = "reject"
        session_id = await editor.start()
        assert await editor.ask(session_id, "change it") == "end_turn"
        assert editor.ended_calls[0].status == "failed"
        assert "not allowed" in str(editor.ended_calls[0].raw_output)
    assert (workspace / "app.py").read_text() == "old"
    assert "not allowed" in json.dumps(scripted.requests[-1].body["messages"])


async def test_what_is_always_allowed_is_not_asked_again_in_this_workspace(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        editor.answer = "always:edits"
        await editor.ask(await editor.start(), "write a.txt: one")
        await editor.ask(await editor.start(), "write a.txt: two")
        assert len(editor.asked) == 1
    assert (workspace / "a.txt").read_text() == "two"


async def test_the_mode_auto_asks_only_for_what_leaves_the_workspace(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id, other = await editor.start(), await editor.start()
        await editor.connection.set_session_mode(session_id=session_id, mode_id="auto")
        await editor.ask(session_id, "write a.txt: inside")
        assert editor.asked == []
        editor.answer = "reject"
        await editor.ask(session_id, "write /etc/hermes-example.txt: outside")
        assert len(editor.asked) == 1
        await editor.ask(other, "write a.txt: in a session with its own mode")
        assert len(editor.asked) == 2
        with pytest.raises(RequestError, match="there is no mode 'yolo'; there are: ask, auto"):
            await editor.connection.set_session_mode(session_id=session_id, mode_id="yolo")


async def test_the_mode_of_new_sessions_is_the_configured_one(home: Path, workspace: Path) -> None:
    write_settings(home, ["approvals:", "  mode: auto"])
    async with open_editor(workspace) as editor:
        new = await editor.connection.new_session(cwd=str(workspace), mcp_servers=[])
        assert new.modes is not None
        assert new.modes.current_mode_id == "auto"
        await editor.connection.set_session_mode(session_id=new.session_id, mode_id="ask")
        await editor.ask(new.session_id, "write a.txt: asked all the same")
        assert len(editor.asked) == 1


async def test_mode_and_model_are_options(home: Path, workspace: Path, model_server: ModelServer) -> None:
    fallbacks = ["model:", "  fallbacks:", "    - model: large-model"]
    write_settings(home, [*NO_TITLES, *fallbacks])
    model_server.will(says("large"), says("large again"))
    async with open_editor(workspace, **use_model(model_server)) as editor:
        new = await editor.connection.new_session(cwd=str(workspace), mcp_servers=[])
        session_id = new.session_id

        def read(options: Any) -> dict[str, tuple[str, list[str]]]:
            return {
                option.id: (option.current_value, [choice.value for choice in option.options])
                for option in options
            }

        models = ["small-model", "large-model"]
        assert read(new.config_options) == {
            "mode": ("ask", ["ask", "auto"]),
            "model": ("small-model", models),
        }
        chosen = await editor.connection.set_config_option("model", session_id, "large-model")
        assert chosen is not None
        assert read(chosen.config_options)["model"] == ("large-model", models)
        await editor.ask(session_id, "which model are you?")
        assert model_server.requests[-1].body["model"] == "large-model"
        await editor.connection.set_config_option("mode", session_id, "auto")
        assert editor.list_updates(CurrentModeUpdate)[-1].current_mode_id == "auto"
        await editor.connection.set_session_mode(session_id=session_id, mode_id="ask")
        assert read(editor.list_updates(ConfigOptionUpdate)[-1].config_options)["mode"][0] == "ask"
        for option, value in (("model", "unknown"), ("colour", "red")):
            with pytest.raises(RequestError):
                await editor.connection.set_config_option(option, session_id, value)
    async with open_editor(workspace, **use_model(model_server)) as editor:
        loaded = await editor.connection.load_session(
            cwd=str(workspace), session_id=session_id, mcp_servers=[]
        )
        assert loaded is not None
        assert read(loaded.config_options)["model"] == ("large-model", models)
        await editor.ask(session_id, "and now?")
        assert model_server.requests[-1].body["model"] == "large-model"
    with SessionDB() as db:
        row = db.get_session(session_id)
        assert row is not None
        assert row["model"] == "large-model"


async def test_a_subagent_that_needs_a_permission_asks_in_the_session(
    workspace: Path, scripted: ModelServer
) -> None:
    task = json.dumps({"goal": "write the notes", "tools": ["write_file"]})
    notes = json.dumps({"path": "notes.txt", "content": "from the subagent"})
    scripted.will(
        calls(("call_1", "delegate_task", task)),
        calls(("call_2", "write_file", notes)),
        says("The notes are written."),
        says("Done."),
    )
    async with open_editor(workspace, **use_model(scripted)) as editor:
        assert await editor.ask(await editor.start(), "delegate it") == "end_turn"
        ((asked, _),) = editor.asked
        assert asked.tool_call_id == "approval-1"
        assert "write the notes" in str(asked.content)
        ended = {update.tool_call_id: update.status for update in editor.ended_calls}
        assert ended == {"approval-1": "completed", "call_1": "completed"}
        progress = [str(update.content) for update in editor.list_updates(ToolCallProgress) if update.content]
        assert any("write the notes: running" in text for text in progress)
    assert (workspace / "notes.txt").read_text() == "from the subagent"


async def test_a_todo_list_is_a_plan(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        await editor.ask(await editor.start(), "todo buy milk, call Ann")
        assert editor.plan == [("buy milk", "pending"), ("call Ann", "pending")]
        assert [entry for entry in editor.history if entry[0] == "tool"] == []


async def test_the_title_is_reported_when_it_is_made_and_when_it_is_changed(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "search retry budget")
        await editor.wait_until(lambda: editor.title)
        with SessionDB() as db:
            assert editor.title == db.get_session_title(session_id)
        await editor.ask(session_id, "/title Retries")
        await editor.wait_until(lambda: editor.title == "Retries")


async def test_cancelling_keeps_the_text_so_far(workspace: Path, scripted: ModelServer) -> None:
    never = threading.Event()
    scripted.will(Reply([chunk({"content": "So far"}), never]), says("And on."))
    async with open_editor(workspace, **use_model(scripted)) as editor:
        session_id = await editor.start()
        asking = asyncio.create_task(editor.ask(session_id, "a long question"))
        await editor.wait_until(lambda: editor.text)
        with pytest.raises(RequestError, match="a prompt is running in this session"):
            await editor.ask(session_id, "a second question")
        await editor.connection.cancel(session_id=session_id)
        assert await asking == "cancelled"
        never.set()
        assert await editor.ask(session_id, "go on") == "end_turn"
    with SessionDB() as db:
        contents = [row["content"] for row in db.get_messages(session_id)]
    assert contents == ["a long question", "So far", "go on", "And on."]


@pytest.mark.parametrize("ending", ["signal", "end of input"])
async def test_when_the_editor_ends_the_text_so_far_is_kept_and_the_conversation_is_free(
    workspace: Path, scripted: ModelServer, ending: str
) -> None:
    never = threading.Event()
    scripted.will(Reply([chunk({"content": "So far"}), never]))
    async with open_editor(workspace, **use_model(scripted)) as editor:
        session_id = await editor.start()
        asking = asyncio.create_task(editor.ask(session_id, "a long question"))
        await editor.wait_until(lambda: editor.text)
        if ending == "signal":
            editor.process.terminate()
        else:
            assert editor.process.stdin is not None
            editor.process.stdin.close()
        assert await asyncio.wait_for(editor.process.wait(), 20) == 0
        await asyncio.gather(asking, return_exceptions=True)
    never.set()
    with SessionDB() as db:
        assert [row["content"] for row in db.get_messages(session_id)] == ["a long question", "So far"]
        assert db.leases.find_holder(session_id) is None


async def test_cancelling_ends_a_permission_request(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        editor.answer = NEVER
        session_id = await editor.start()
        asking = asyncio.create_task(editor.ask(session_id, "write a.txt: never"))
        await editor.wait_until(lambda: editor.asked)
        await editor.connection.cancel(session_id=session_id)
        assert await asking == "cancelled"
        assert editor.ended_calls[-1].status == "failed"
    assert not (workspace / "a.txt").exists()


async def test_slash_commands_are_offered_and_run(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.wait_until(lambda: editor.list_updates(AvailableCommandsUpdate))
        (offered,) = editor.list_updates(AvailableCommandsUpdate)
        names = {command.name for command in offered.available_commands}
        assert {"title", "undo", "compress", "model", "status", "search"} <= names
        assert not {"new", "resume", "branch", "sessions"} & names
        await editor.ask(session_id, "write a.txt: one")

        async def run(command: str) -> str:
            editor.forget()
            assert await editor.ask(session_id, command) == "end_turn"
            return editor.text

        assert "`/undo [n]`" in await run("/help")
        assert f"Session: `{session_id}`" in await run("/status")
        assert "**You**: write a.txt: one" in await run("/history")
        assert "Model: `offline`" in await run("/model")
        assert "start a new thread in the editor" in await run("/new")
        assert "Nothing is running." in await run("/stop")
        assert "There is no `/frobnicate`" in await run("/frobnicate")
        editor.answer = "yes"
        assert "Took back “write a.txt: one”" in await run("/undo")
        assert editor.asked[0][0].title == "Change these files, too"
        assert not (workspace / "a.txt").exists()
        assert "Brought back" in await run("/redo")
        assert "not a language model" in await run("/etc/hosts is a file, not a command")


async def test_files_links_and_pictures_become_part_of_the_message(
    workspace: Path, scripted: ModelServer
) -> None:
    scripted.will(says("I see."))
    async with open_editor(workspace, **use_model(scripted)) as editor:
        session_id = await editor.start()
        await editor.ask(
            session_id,
            "Compare ",
            resource_block(embedded_text_resource(f"file://{workspace}/app.py#L3", "print('hello')")),
            " with",
            resource_link_block("notes", f"file://{workspace}/my%20notes.txt"),
            " and",
            resource_link_block("the guide", "https://example.org/guide"),
            image_block(PIXEL, "image/png"),
        )
        await editor.connection.close_session(session_id=session_id)
        editor.forget()
        await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        assert [text for role, text in editor.history if role == "user"][1] == "[image]"
    text, picture = scripted.requests[0].body["messages"][-1]["content"]
    typed, _, attached = text["text"].partition("\n\n")
    assert typed == (
        f"Compare {workspace}/app.py:3 with {workspace}/my notes.txt and [the guide](https://example.org/guide)"
    )
    assert attached.startswith(f"[file {workspace}/app.py:3]\n```\nprint('hello')\n```")
    assert picture["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (audio_block("AAAA", "audio/wav"), "audio is not supported"),
        (image_block("AAAA", "image/png"), "is not a PNG, JPEG, GIF or WebP picture"),
        (image_block("no base64", "image/png"), "is not valid base64"),
    ],
)
async def test_content_that_is_not_supported_is_refused_in_one_line(
    workspace: Path, block: Any, message: str
) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        with pytest.raises(RequestError, match=message) as refused:
            await editor.ask(session_id, "look at this", block)
        assert "\n" not in str(refused.value)
        with pytest.raises(RequestError, match="offline takes no pictures"):
            await editor.ask(session_id, "look at this", image_block(PIXEL, "image/png"))
        assert (await editor.connection.list_sessions()).sessions == []


async def test_servers_that_the_editor_hands_over_are_reported_as_unsupported(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        server = McpServerStdio(name="files", command="serve", args=[], env=[])
        new = await editor.connection.new_session(cwd=str(workspace), mcp_servers=[server])
        assert new.field_meta == {"hermes": {"unsupportedMcpServers": ["files"]}}
        await editor.wait_until(lambda: editor.text)
        assert editor.text.strip() == (
            "MCP servers of the editor are not supported yet; these are not available: files."
        )
        assert await editor.ask(new.session_id, "hello") == "end_turn"


async def test_a_model_that_fails_is_a_clear_error_and_the_prompt_is_kept(
    home: Path, workspace: Path
) -> None:
    write_settings(home, [*NO_TITLES, "model:", "  max_retries: 0"])
    variables = {"HERMES_MODEL": "m", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "a key"}
    async with open_editor(workspace, **variables) as editor:
        session_id = await editor.start()
        with pytest.raises(RequestError) as refused:
            await editor.ask(session_id, "hello")
        assert "127.0.0.1:9" in str(refused.value)
        assert "\n" not in str(refused.value)
    with SessionDB() as db:
        assert [row["content"] for row in db.get_messages(session_id)] == ["hello"]


async def test_without_a_model_the_error_says_how_to_choose_one(workspace: Path) -> None:
    async with open_editor(workspace, HERMES_MODEL="") as editor:
        session_id = await editor.start()
        with pytest.raises(RequestError, match="hermes setup"):
            await editor.ask(session_id, "hello")


async def test_the_context_and_the_cost_are_reported(workspace: Path, scripted: ModelServer) -> None:
    scripted.will(says("four", used=usage(prompt_tokens=12, completion_tokens=3)))
    async with open_editor(workspace, "-m", "gpt-4o", **use_model(scripted)) as editor:
        await editor.ask(await editor.start(), "2 + 2?")
        (used,) = editor.list_updates(UsageUpdate)
        assert (used.used, used.size) == (15, 128_000)


def test_stdout_has_only_the_protocol_and_a_broken_line_gets_an_error(workspace: Path) -> None:
    lines = [
        "this is not JSON",
        "[]",
        '{"jsonrpc": "2.0", "method": "$/unknown_notification"}',
        '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}',
    ]
    done = subprocess.run(
        COMMAND,
        input="\n".join(lines) + "\n",
        env={**os.environ, "HERMES_MODEL": "offline"},
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32600, None]
    assert answers[2]["result"]["protocolVersion"] == 1
    assert done.stderr == ""


def test_stdin_that_is_no_pipe_is_refused_in_one_line(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_text("{}")
    with requests.open() as file:
        done = subprocess.run(COMMAND, stdin=file, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hermes: stdin and stdout must be pipes")
    assert len(done.stderr.splitlines()) == 1


def test_without_the_sdk_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    program = tmp_path / "without_sdk.py"
    program.write_text(WITHOUT_SDK)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "hermes-sessions[acp]" in done.stderr
