"""Sessions of an editor: started, listed, loaded, resumed, forked, closed and deleted; and shared with the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from uuid import UUID

import pytest
from acp import RequestError

from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, Reply, chunk, says
from tests.interop.editor import NO_TITLES, open_editor, use_model, write_settings


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def ask_in_terminal(session_id: str | None, question: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Ask a question with `hermes -q`, in a session or in a new one."""
    resume = [] if session_id is None else ["-r", session_id]
    return subprocess.run(
        [sys.executable, "-m", "hermes.cli.main", *resume, "-q", question],
        env={**os.environ, "HERMES_MODEL": "offline"},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


async def test_the_agent_says_what_it_can_do(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        answer = await editor.connection.initialize(protocol_version=1)
    can = answer.agent_capabilities
    assert answer.protocol_version == 1
    assert answer.agent_info is not None
    assert answer.agent_info.name == "hermes"
    assert can is not None
    assert can.load_session is True
    assert can.prompt_capabilities is not None
    assert (can.prompt_capabilities.image, can.prompt_capabilities.audio) == (True, False)
    assert can.prompt_capabilities.embedded_context is True
    sessions = can.session_capabilities
    assert sessions is not None
    assert None not in (sessions.list, sessions.resume, sessions.close, sessions.delete, sessions.fork)


async def test_a_session_is_stored_with_its_first_message(
    home: Path, workspace: Path, model_server: ModelServer
) -> None:
    write_settings(home, NO_TITLES)
    model_server.will(says("Hello from the model."))
    async with open_editor(workspace, **use_model(model_server)) as editor:
        session_id = await editor.start()
        assert UUID(session_id).version == 4
        with SessionDB() as db:
            assert db.get_session(session_id) is None
        assert await editor.ask(session_id, "hello") == "end_turn"
        assert editor.text == "Hello from the model."
    with SessionDB() as db:
        row = db.get_session(session_id)
        assert row is not None
        assert (row["source"], row["cwd"], row["end_reason"]) == ("acp", str(workspace), "acp_close")
        config = json.loads(row["model_config"])
        assert {key: config[key] for key in ("cwd", "provider", "base_url", "api_mode")} == {
            "cwd": str(workspace),
            "provider": config["provider"],
            "base_url": model_server.base_url,
            "api_mode": "chat_completions",
        }
        assert [message["content"] for message in db.get_messages(session_id)] == [
            "hello",
            "Hello from the model.",
        ]


async def test_load_replays_the_history_and_resume_does_not(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "write notes.txt: first line")
        await editor.ask(session_id, "todo buy milk, call Ann")
        live = [entry for entry in editor.history if entry[0] == "tool"]
    async with open_editor(workspace) as editor:
        await editor.connection.resume_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        assert editor.history == []
        await editor.connection.close_session(session_id=session_id)
        await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        shown = editor.history
        assert [text for role, text in shown if role == "user"] == [
            "write notes.txt: first line",
            "todo buy milk, call Ann",
        ]
        assert [entry for entry in shown if entry[0] == "tool"] == live == [("tool", "write_file: notes.txt")]
        assert [role for role, _ in shown] == ["user", "tool", "agent", "user", "agent"]
        assert editor.plan == [("buy milk", "pending"), ("call Ann", "pending")]
        diff = editor.ended_calls[0].content
        assert diff is not None
        assert (diff[0].type, diff[0].path, diff[0].new_text) == (
            "diff",
            str(workspace / "notes.txt"),
            "first line",
        )
        assert await editor.ask(session_id, "read notes.txt") == "end_turn"
        assert "first line" in editor.text


async def test_the_history_before_a_compression_is_replayed_under_the_id_that_the_editor_knows(
    workspace: Path,
) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "the first question")
    with SessionDB() as db:
        child = db.begin_continuation(session_id, "a summary")
        db.append_message(child, "user", "the second question")
    async with open_editor(workspace) as editor:
        listed = await editor.connection.list_sessions(cwd=str(workspace))
        assert [session.session_id for session in listed.sessions] == [session_id]
        await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        asked = [text for role, text in editor.history if role == "user"]
        assert asked == ["the first question", "the second question"]
        await editor.ask(session_id, "the third question")
    with SessionDB() as db:
        assert [row["content"] for row in db.get_messages(child) if row["role"] == "user"] == [
            "the second question",
            "the third question",
        ]


async def test_the_list_has_sessions_with_messages_of_one_directory_with_their_titles(
    home: Path, tmp_path: Path, workspace: Path
) -> None:
    write_settings(home, NO_TITLES)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "link").symlink_to(workspace)
    async with open_editor(workspace) as editor:
        first, second, _empty = [await editor.start() for _ in range(3)]
        await editor.ask(first, "how long is a retry?")
        await editor.ask(second, "another question")
        await editor.ask(second, "/title Retries")
        other = (await editor.connection.new_session(cwd=str(elsewhere), mcp_servers=[])).session_id
        await editor.ask(other, "a question elsewhere")

        async def titles(cwd: Path | None) -> list[str | None]:
            found = await editor.connection.list_sessions(cwd=None if cwd is None else f"{cwd}/")
            assert found.next_cursor is None
            return [session.title for session in found.sessions]

        assert await titles(None) == ["a question elsewhere", "Retries", "how long is a retry?"]
        assert await titles(workspace) == ["Retries", "how long is a retry?"]
        assert await titles(tmp_path / "link") == await titles(workspace)
        assert await titles(tmp_path) == []


async def test_a_list_continues_where_its_page_ended_even_if_a_session_is_added(
    db: SessionDB, workspace: Path
) -> None:
    for number in range(60):
        db.create_session(f"s{number:02}", "acp", cwd=str(workspace), started_at=1000.0 + number)
        db.append_message(f"s{number:02}", "user", f"question {number}", timestamp=2000.0 + number // 3)
    async with open_editor(workspace) as editor:
        page = await editor.connection.list_sessions(cwd=str(workspace))
        db.create_session("new", "acp", cwd=str(workspace))
        db.append_message("new", "user", "a question that was added meanwhile")
        rest = await editor.connection.list_sessions(cwd=str(workspace), cursor=page.next_cursor)
        assert (len(page.sessions), len(rest.sessions), rest.next_cursor) == (50, 10, None)
        listed = [session.session_id for session in (*page.sessions, *rest.sessions)]
        assert listed == [f"s{number:02}" for number in reversed(range(60))]
        with pytest.raises(RequestError, match="cursor"):
            await editor.connection.list_sessions(cursor="nonsense")


async def test_a_closed_session_continues_in_the_terminal_and_again_in_the_editor(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "asked in the editor")
        held = ask_in_terminal(session_id, "asked in the terminal", workspace)
        assert held.returncode == 1
        assert "editor" in held.stderr
        await editor.connection.close_session(session_id=session_id)
        assert ask_in_terminal(session_id, "asked in the terminal", workspace).returncode == 0
        editor.forget()
        await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        asked = [text for role, text in editor.history if role == "user"]
        assert asked == ["asked in the editor", "asked in the terminal"]


async def test_a_session_of_the_terminal_is_listed_and_loaded_in_its_workspace_only(
    tmp_path: Path, workspace: Path
) -> None:
    done = ask_in_terminal(None, "asked in the terminal", workspace)
    session_id = done.stderr.rpartition("session_id: ")[2].strip()
    async with open_editor(workspace) as editor:
        listed = await editor.connection.list_sessions(cwd=str(workspace))
        assert [session.session_id for session in listed.sessions] == [session_id]
        with pytest.raises(RequestError, match="belongs to the workspace") as refused:
            await editor.connection.load_session(cwd=str(tmp_path), session_id=session_id, mcp_servers=[])
        assert refused.value.code == -32602
        await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        assert editor.history[0] == ("user", "asked in the terminal")
        await editor.ask(session_id, "asked in the editor")
    with SessionDB() as db:
        row = db.get_session(session_id)
        assert row is not None
        assert row["source"] == "cli"


async def test_a_conversation_that_is_open_elsewhere_is_refused_and_can_be_forked(
    db: SessionDB, workspace: Path
) -> None:
    db.create_session("busy", "acp", cwd=str(workspace))
    db.append_message("busy", "user", "a question")
    db.append_message("busy", "assistant", "an answer")
    lease = db.leases.acquire("busy", "terminal")
    async with open_editor(workspace) as editor:
        for open_session in (editor.connection.load_session, editor.connection.resume_session):
            with pytest.raises(
                RequestError, match=f"open elsewhere: terminal, process {os.getpid()}"
            ) as held:
                await open_session(cwd=str(workspace), session_id="busy", mcp_servers=[])
            assert held.value.code == -32001
        with pytest.raises(RequestError, match="open elsewhere"):
            await editor.call("session/delete", sessionId="busy")
        fork = await editor.connection.fork_session(cwd=str(workspace), session_id="busy", mcp_servers=[])
        assert UUID(fork.session_id).version == 4
        await editor.ask(fork.session_id, "a question in the fork")
        db.leases.release(lease)
        await editor.connection.load_session(cwd=str(workspace), session_id="busy", mcp_servers=[])
    assert [row["content"] for row in db.get_messages("busy")] == ["a question", "an answer"]
    assert [row["content"] for row in db.get_context(fork.session_id)][:3] == [
        "a question",
        "an answer",
        "a question in the fork",
    ]


async def test_a_conversation_that_another_process_takes_over_must_be_loaded_again(
    db: SessionDB, workspace: Path
) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "first")
        lease = db.leases.take_over(session_id, "terminal")
        with pytest.raises(RequestError, match="taken over"):
            await editor.ask(session_id, "second")
        with pytest.raises(RequestError, match="is not open; load or resume it first"):
            await editor.ask(session_id, "third")
        db.leases.release(lease)
        await editor.connection.resume_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        assert await editor.ask(session_id, "fourth") == "end_turn"
    asked = [row["content"] for row in db.get_messages(session_id) if row["role"] == "user"]
    assert asked == ["first", "fourth"]


async def test_a_deleted_session_goes_to_the_trash(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "a question")
        assert await editor.call("session/delete", sessionId=session_id) == {}
        assert (await editor.connection.list_sessions()).sessions == []
        with pytest.raises(RequestError, match="not found") as missing:
            await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        assert missing.value.code == -32002
        assert await editor.call("session/delete", sessionId=session_id) == {}
        assert await editor.call("session/delete", sessionId="never seen") == {}
    with SessionDB() as db:
        assert db.restore_session(session_id) == [session_id]


async def test_an_answer_that_a_crash_cut_off_is_loaded_and_continued(
    home: Path, workspace: Path, model_server: ModelServer
) -> None:
    write_settings(home, NO_TITLES)
    never = threading.Event()
    words = [chunk({"content": "The answer begins"}), chunk({"content": " and then"})]
    model_server.will(Reply([*words, never]), says("Now it is complete."))
    async with open_editor(workspace, **use_model(model_server)) as editor:
        session_id = await editor.start()
        asking = asyncio.create_task(editor.ask(session_id, "a long question"))
        with SessionDB() as db:
            async with asyncio.timeout(30):
                while len(db.get_messages(session_id)) < 2:  # the text so far is stored once a second
                    await asyncio.sleep(0.05)
        editor.process.kill()
        with pytest.raises(ConnectionError):
            await asking
    never.set()
    async with open_editor(workspace, **use_model(model_server)) as editor:
        await editor.connection.load_session(cwd=str(workspace), session_id=session_id, mcp_servers=[])
        (_, question), (_, answer), (_, note) = editor.history
        assert (question, answer) == ("a long question", "The answer begins and then")
        assert "broke off" in note
        editor.forget()
        assert await editor.ask(session_id, "/retry") == "end_turn"
        assert editor.text == "Now it is complete."


async def test_errors_are_one_line(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        cases = {
            "there is no directory": editor.connection.new_session(cwd="/no/such/folder", mcp_servers=[]),
            "must be an absolute path": editor.connection.new_session(cwd="project", mcp_servers=[]),
            "Session not found: unknown": editor.connection.load_session(
                cwd=str(workspace), session_id="unknown", mcp_servers=[]
            ),
            "session 'unknown' is not open": editor.ask("unknown", "hello"),
            "there is no method 'session/dance'": editor.call("session/dance"),
            "session/new: cwd: Field required": editor.call("session/new"),
        }
        for message, request in cases.items():
            with pytest.raises(RequestError) as refused:
                await request
            assert message in str(refused.value)
            assert "\n" not in str(refused.value)


async def test_a_session_is_open_once(workspace: Path) -> None:
    async with open_editor(workspace) as editor:
        session_id = await editor.start()
        await editor.ask(session_id, "a question")
        with SessionDB() as db:
            child = db.begin_continuation(session_id, "a summary")
        with pytest.raises(RequestError, match=f"already open here, as session {session_id}"):
            await editor.connection.load_session(cwd=str(workspace), session_id=child, mcp_servers=[])


async def test_sessions_that_editors_do_not_list_cannot_be_deleted(db: SessionDB, workspace: Path) -> None:
    db.create_session("from-telegram", "telegram")
    async with open_editor(workspace) as editor:
        with pytest.raises(RequestError, match="Session not found"):
            await editor.call("session/delete", sessionId="from-telegram")
    assert db.get_session("from-telegram") is not None
