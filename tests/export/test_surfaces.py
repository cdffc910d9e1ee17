"""The `hermes` command, `/save`, the browser and the API export the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.export.formats import FORMATS
from hermes_state import SessionDB
from tests.browser.conftest import Browsing
from tests.chat.conftest import Typing
from tests.cli.conftest import Hermes
from tests.server.api_gateway import ANNA, BERT, PEOPLE, ask, open_api_gateway, user

STATE = {"ended_at", "end_reason", "lease_epoch", "cwd", "workspace", "git_branch", "model", "model_config"}
"""Fields that change when a chat resumes a conversation and leaves it."""
NOT_FOR_CLIENTS = {"system_prompt", "owner", "origin_json", "process", "session_key"}


async def make_conversation(db: SessionDB) -> str:
    """Create two sessions of an API client, with text that every format must escape. Return the id of the
    second."""
    async with open_api_gateway() as gateway:
        _, first = await ask(gateway, [user("plans <b>for</b> `Löve` & \u2028 [x](javascript:y)")])
    db.set_session_title(first, "Große Pläne")
    carried = [row["id"] for row in db.get_messages(first)][-1:]
    second = db.begin_continuation(first, "the summary", carried, session_id="second")
    db.append_message(second, "user", "and then?")
    db.append_message(second, "assistant", "# then\n\n- that")
    return second


def read_jsonl(text: bytes, left_out: set[str]) -> list[dict[str, Any]]:
    sessions = [json.loads(line) for line in text.decode().splitlines()]
    return [{name: value for name, value in found.items() if name not in left_out} for found in sessions]


async def test_every_surface_writes_the_same(
    db: SessionDB,
    typing: Typing,
    hermes: Hermes,
    browsing: Browsing,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session_id = await make_conversation(db)
    endings = {"jsonl": "jsonl", "md": "md", "html": "html"}
    await typing(*(f"/save saved.{ending}" for ending in endings.values()), resuming=session_id)
    for name, ending in {**endings, "trace": "trace"}.items():
        done = hermes(
            "sessions", "export", f"{tmp_path}/told.{ending}", "--session-id", session_id, "--format", name
        )
        assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    for ending in endings.values():
        async with browsing() as screen:
            await screen.press("ctrl+e", "ctrl+u", *f"browsed.{ending}", "enter")
            assert screen.status.startswith("Exported “Große Pläne #2” to /")
    async with open_api_gateway() as gateway, gateway.http() as client:
        fetched = {
            name: (await client.get(f"/api/sessions/{session_id}/export", params={"format": name})).content
            for name in FORMATS
        }
    for name in ("md", "html"):
        expected = (tmp_path / f"told.{name}").read_bytes()
        assert len(expected) > 500
        assert (tmp_path / f"saved.{name}").read_bytes() == expected
        assert (tmp_path / f"browsed.{name}").read_bytes() == expected
        assert fetched[name] == expected
    assert fetched["trace"] == (tmp_path / "told.trace").read_bytes()
    told = (tmp_path / "told.jsonl").read_bytes()
    assert (tmp_path / "browsed.jsonl").read_bytes() == told
    assert read_jsonl((tmp_path / "saved.jsonl").read_bytes(), STATE) == read_jsonl(told, STATE)
    assert read_jsonl(fetched["jsonl"], set()) == read_jsonl(told, NOT_FOR_CLIENTS)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.*")} == {0o600}


async def test_the_api_exports_only_sessions_of_the_key_and_names_the_file() -> None:
    async with open_api_gateway({"keys": PEOPLE, "key": None}) as gateway:
        _, mine = await ask(gateway, [user("a secret of anna")], key=ANNA)
        gateway.db.set_session_title(mine, "Ä/b")
        async with gateway.http(BERT) as client:
            assert (await client.get(f"/api/sessions/{mine}/export")).status_code == 404
        async with gateway.http(ANNA) as client:
            for name, kind in (
                ("md", "text/markdown"),
                ("html", "text/html"),
                ("jsonl", "application/jsonl"),
            ):
                answer = await client.get(f"/api/sessions/{mine}/export", params={"format": name})
                assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
                assert "a secret of anna" in answer.text
                stem = f"%C3%84-b-{mine}" if name == "md" else mine
                file = f"attachment; filename*=UTF-8''{stem}.{name}"
                assert answer.headers["content-disposition"] == file
            wrong = await client.get(f"/api/sessions/{mine}/export", params={"format": "pdf"})
            assert (wrong.status_code, wrong.json()["error"]["param"]) == (422, "format")


async def test_a_large_conversation_is_sent_in_pieces_and_a_client_may_leave() -> None:
    async with open_api_gateway() as gateway, gateway.http() as client:
        _, session = await ask(gateway, [user("begin")])
        for number in range(40):
            gateway.db.append_message(session, "assistant", f"{number} " + "x" * 100_000)
        async with client.stream("GET", f"/api/sessions/{session}/export?format=md") as answer:
            async for _ in answer.aiter_bytes():
                break
        answered = await client.get(f"/api/sessions/{session}/export?format=md")
        assert len(answered.content) > 4_000_000
        assert answered.text.count("## Assistant") == 41
