"""A real conversation through every source is stored as the table of sources says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from hermes.cli.sources import list_sources
from hermes.config.platforms import list_platforms
from hermes.session_kinds import CHAT_TYPES, PLATFORMS, SOURCES
from hermes_state import SessionDB
from tests import warm_command
from tests.agent.task_server import TaskServer, choose_server, delegate
from tests.gateway.conformance.echo_model import EchoModel
from tests.gateway.conformance.gateway_process import Gateway
from tests.gateway.conformance.on_api_server import OnApiServer
from tests.gateway.conformance.on_matrix import OnMatrix
from tests.gateway.conformance.on_telegram import OnTelegram
from tests.gateway.conformance.on_webhook import Asking
from tests.gateway.conformance.stage import Person, Stage, until
from tests.interop.editor import open_editor
from tools.sources_table import PAGE, update_page

Talk = Callable[[Path, EchoModel], None]

NEED_A_SERVER = {"matrix"}
PLACEHOLDER = re.compile(r"<[^>]+>|\[|\]|YYYYmmdd|HHMMSS")
PATTERNS = {
    "YYYYmmdd": r"\d{8}",
    "HHMMSS": r"\d{6}",
    "<8 hex>": "[0-9a-f]{8}",
    "<12 hex>": "[0-9a-f]{12}",
    "<uuid4>": "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "<number>": r"\d+",
    "<type>": f"(?:{'|'.join(CHAT_TYPES)})",
    "[": "(?:",
    "]": ")?",
}


def run_hermes(*words: str) -> str:
    done = warm_command.run(words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def list_ids(*flags: str) -> set[str]:
    rows: list[dict[str, Any]] = json.loads(run_hermes("sessions", "list", "--json", *flags))
    return {row["id"] for row in rows}


def has_form(text: str, form: str) -> bool:
    """Return whether a text has a form of the table."""
    return re.fullmatch(PLACEHOLDER.sub(lambda at: PATTERNS.get(at[0], "[^:]+"), form), text) is not None


# ---------------------------------------------------------------- one conversation through each source


def ask_in_terminal(*flags: str) -> Talk:
    return lambda _folder, _model: assert_answered(run_hermes("-q", "hello", *flags))


def assert_answered(output: str) -> None:
    assert "You said: hello" in output


def ask_on(make_stage: Callable[[], Stage], then: Callable[[Stage, Person], None] | None = None) -> Talk:
    def ask(folder: Path, model: EchoModel) -> None:
        stage = make_stage()
        gateway = Gateway(folder, stage, model)
        try:
            gateway.be_up()
            person = stage.person("Ann")
            here = stage.dm(person)
            stage.say(person, here, "hello")
            until(lambda: stage.heard(here), lambda: gateway.log)
            if then is not None:
                then(stage, person)
        finally:
            gateway.close()
            stage.close()

    return ask


def ask_without_name(stage: Stage, person: Person) -> None:
    """Ask the API in a session that gets no name from the client."""
    address = f"http://127.0.0.1:{stage.environment['API_SERVER_PORT']}/v1"
    with OpenAI(base_url=address, api_key=stage.config["keys"][person.id]) as client:
        client.chat.completions.create(model="hermes", messages=[{"role": "user", "content": "hello"}])


def ask_in_editor(folder: Path, _model: EchoModel) -> None:
    async def ask() -> None:
        async with open_editor(folder / "project", HERMES_MODEL="large-model") as editor:
            session_id = await editor.start()
            await editor.ask(session_id, "hello")
            await editor.connection.close_session(session_id=session_id)

    asyncio.run(ask())


def ask_in_job(_folder: Path, _model: EchoModel) -> None:
    run_hermes("cron", "add", "@yearly", "hello", "--name", "Yearly report")
    run_hermes("cron", "run", "yearly-report")


def ask_in_batch(folder: Path, _model: EchoModel) -> None:
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello"}\n')
    run_hermes("batch", "run", str(prompts), "--out", str(folder / "out"))


CONVERSATIONS: dict[str, Talk] = {
    "cli": ask_in_terminal(),
    "telegram": ask_on(OnTelegram),
    "matrix": ask_on(OnMatrix),
    "webhook": ask_on(Asking),
    "api-server": ask_on(OnApiServer, ask_without_name),
    "acp": ask_in_editor,
    "cron": ask_in_job,
    "batch": ask_in_batch,
    "tool": ask_in_terminal("--source", "tool"),
}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[EchoModel]:
    """Start a model that repeats the prompt, and select it in the settings."""
    server = EchoModel()
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("HERMES_MODEL", "large-model")
    yield server
    server.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in NEED_A_SERVER else [])
        for name in list_sources()
    ],
)
def test_a_conversation_is_stored_as_its_source_says(name: str, tmp_path: Path, model: EchoModel) -> None:
    source = list_sources()[name]
    CONVERSATIONS[name](tmp_path, model)
    with SessionDB() as db:
        ids = {row["id"] for row in db.list_conversations(include_hidden=True).rows}
        sessions = [db.get_session(session_id) or {} for session_id in ids]
        for session_id in ids:
            roles = {row["role"]: str(row["content"]) for row in db.get_messages(session_id)}
            assert "hello" in roles["user"]
            assert_answered(roles["assistant"])
        pruned = {row["id"] for row in db.list_prune_candidates(0)}
    assert {(session["source"], session["kind"]) for session in sessions} == {(name, source.kind)}
    for form in source.id_forms:
        assert any(has_form(session_id, form) for session_id in ids), (ids, form)
    assert len(ids) == len(source.id_forms)
    for session in sessions:
        key = session["session_key"]
        assert key is None if source.key_form is None else has_form(key, source.key_form), key
    assert pruned == (ids if source.is_ended else set())
    assert list_ids() == (ids if source.is_listed else set())
    assert list_ids("--source", name) == ids


def test_a_subagent_has_the_source_of_its_caller_and_is_listed_with_all_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_MODEL"):
        monkeypatch.setenv(name, "")  # restored after the test
    home.mkdir(mode=0o700)
    server = TaskServer()
    choose_server(server)
    run_hermes("-q", delegate("say hello"), "--source", "tool")
    server.close()
    with SessionDB() as db:
        kinds = {row["id"]: row["kind"] for row in db.list_conversations(include_hidden=True).rows}
        assert {(db.get_session(session_id) or {})["source"] for session_id in kinds} == {"tool"}
    assert sorted(kinds.values()) == ["child", "tool"]
    assert [kinds[session_id] for session_id in list_ids("--source", "tool")] == ["tool"]
    assert list_ids() == set()
    assert list_ids("--all") == kinds.keys()


def test_every_source_is_declared_and_has_a_conversation_here() -> None:
    without_adapter = set(PLATFORMS) - set(list_platforms())
    assert list_sources().keys() == {*SOURCES, *list_platforms(), "tool"} - without_adapter
    assert list_sources().keys() == CONVERSATIONS.keys()


def test_the_page_has_the_table_of_the_declared_sources() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert update_page(page) == page, "the table is not up to date: run `python -m tools.sources_table`"
    assert all(f"| `{name}` |" in page for name in list_sources())
