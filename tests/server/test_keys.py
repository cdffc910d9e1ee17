"""The keys of `hermes gateway keys` work, are limited, expire and are revoked while the gateway runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from hermes import clock, errors
from hermes.cli.main import main
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.ops.key_file import KeyFile, KeyLimits
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.settings import PlatformSettings, read_gateway_settings
from hermes.server.api import ApiServer
from hermes.store.people import Principal
from tests.server.api_gateway import KEY, ParrotAgents, ask, open_api_gateway, user

UNLIMITED = {"requests_per_minute": 100_000}


def run(*words: str) -> int:
    return main(["gateway", "keys", *words])


def add(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Create a key on the command line and return it."""
    capsys.readouterr()
    assert run("add", *words) == 0
    return capsys.readouterr().out.strip()


async def run_now(*words: str) -> None:
    assert await asyncio.to_thread(run, *words) == 0


async def test_a_key_works_as_soon_as_it_is_made_and_is_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna")
        answer, session = await ask(gateway, [user("hello")], key=key)
        assert answer == "you said: hello"
        row = gateway.db.get_session(session)
        assert row is not None
        assert row["user_id"] == "anna"
        assert (await ask(gateway, [user("hello")]))[1] != session
        for file in gateway_folder().rglob("*"):
            assert file.is_dir() or key.encode() not in file.read_bytes()


async def test_a_new_key_of_the_same_name_keeps_the_sessions_and_ends_the_old_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_api_gateway() as gateway:
        old = await asyncio.to_thread(add, capsys, "anna", "--cost-per-day", "3")
        _, session = await ask(gateway, [user("hello")], key=old)
        assert await asyncio.to_thread(run, "add", "anna") == 1
        new = await asyncio.to_thread(add, capsys, "anna", "--replace")
        assert (await ask(gateway, [user("more")], session=session, key=new))[1] == session
        with pytest.raises(openai.AuthenticationError):
            await ask(gateway, [user("hello")], key=old)
        assert KeyFile(gateway_folder()).find_limits("anna").cost_per_day == 3


async def test_a_revoked_key_stops_working_at_once_and_its_name_stays_reserved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna")
        await ask(gateway, [user("hello")], key=key)
        await run_now("revoke", "anna")
        with pytest.raises(openai.AuthenticationError, match="revoked") as refused:
            await ask(gateway, [user("hello")], key=key)
        assert refused.value.code == "revoked_api_key"
        assert await asyncio.to_thread(run, "add", "anna") == 1
        assert await asyncio.to_thread(run, "revoke", "anna") == 1


async def test_an_answer_that_is_being_made_ends_when_its_key_is_revoked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna")
        asking = asyncio.create_task(ask(gateway, [user("forever")], key=key))
        await gateway.agents.model.has_spoken.wait()
        await run_now("revoke", "anna")
        async with asyncio.timeout(60):
            with pytest.raises(openai.AuthenticationError, match="revoked"):
                await asking
            await gateway.agents.model.stopped.wait()


async def test_an_expired_key_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna", "--expires", "1h")
        await ask(gateway, [user("hello")], key=key)
        KeyFile(gateway_folder()).set_limits("anna", {"expires_at": clock.now() - 1}, may_create=False)
        with pytest.raises(openai.AuthenticationError, match="expired at") as refused:
            await ask(gateway, [user("hello")], key=key)
        assert refused.value.code == "expired_api_key"
        await run_now("limit", "anna", "--expires", "none")
        await ask(gateway, [user("hello")], key=key)


async def test_the_rate_of_a_key_takes_effect_while_the_gateway_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna")
        async with gateway.http(key) as client:
            assert (await client.get("/v1/models")).status_code == 200
            await run_now("limit", "anna", "--requests-per-minute", "2")
            statuses = [(await client.get("/v1/models")).status_code for _ in range(3)]
            assert statuses == [200, 200, 429]
            refused = await client.get("/v1/models")
            assert refused.headers["retry-after"] == "30"
            assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        async with gateway.http() as client:
            assert (await client.get("/v1/models")).status_code == 200
        async with gateway.http(key) as client:
            await run_now("limit", "anna", "--requests-per-minute", "none")
            assert (await client.get("/v1/models")).status_code == 200


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--cost-per-day", "0.02"), "$0.02 for today"),
        (("--cost-per-month", "0.02"), "$0.02 for this month"),
        (("--tokens-per-day", "10"), "10 tokens for today"),
        (("--tokens-per-month", "10"), "10 tokens for this month"),
    ],
)
async def test_a_key_that_has_used_its_budget_is_refused_until_the_period_ends(
    option: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna", *option)
        for number in range(2):  # each answer costs a cent and five tokens or more
            _, session = await ask(gateway, [user(f"number {number}")], key=key)
            store = gateway.db.scoped(Principal("api-server", "anna"))
            # deleting a session does not reduce the amount spent
            await asyncio.to_thread(store.trash_session, session)
        sessions = gateway.db.session_count()
        with pytest.raises(openai.RateLimitError) as refused:
            await ask(gateway, [user("one more")], key=key)
        assert told in str(refused.value)
        assert refused.value.code == "insufficient_quota"
        assert 0 < int(refused.value.response.headers["retry-after"]) <= 32 * clock.DAY
        assert gateway.db.session_count() == sessions
        await ask(gateway, [user("somebody else")])
        await run_now("limit", "anna", option[0], "1000")
        await ask(gateway, [user("one more")], key=key)


async def test_a_key_uses_only_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    agents = ParrotAgents()
    async with open_api_gateway(agents=agents) as gateway:
        key = await asyncio.to_thread(add, capsys, "anna", "--model", "small", "--model", "large")
        async with gateway.openai(key) as client:

            async def send(model: str) -> Any:
                return await client.chat.completions.create(model=model, messages=[user("hello")])

            for model in ("hermes", "large", "small"):
                await send(model)
            assert [scope.model for scope in agents.scope] == ["small", "large", "small"]
            assert [model.id async for model in client.models.list()] == ["hermes", "small", "large"]
            with pytest.raises(openai.PermissionDeniedError) as refused:
                await send("huge")
            assert refused.value.code == "model_not_allowed"
            await run_now("limit", "anna", "--model", "none")
            await send("hermes")
            assert agents.scope[-1].model is None
            with pytest.raises(openai.NotFoundError):
                await send("large")


async def test_a_key_of_the_settings_can_be_limited_by_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_SERVER_KEY", KEY)
    async with open_api_gateway() as gateway:
        assert await asyncio.to_thread(run, "list", "--json") == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert listed["setting"] == "API_SERVER_KEY"
        await run_now("limit", listed["name"], "--tokens-per-day", "1")
        await ask(gateway, [user("hello")])
        with pytest.raises(openai.RateLimitError):
            await ask(gateway, [user("hello")])
        assert await asyncio.to_thread(run, "revoke", listed["name"]) == 1
        assert "is in the settings" in capsys.readouterr().err


async def test_the_list_says_when_a_key_was_used_and_what_it_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna", "--cost-per-day", "5")
        await asyncio.to_thread(add, capsys, "bert")
        for _ in range(2):
            await ask(gateway, [user("hello")], key=key)
    assert await asyncio.to_thread(run, "list") == 0
    out = capsys.readouterr().out
    assert f"anna (…{key[-4:]}, made just now)\n  limits: $5.00 per day\n" in out
    assert "  last used just now from 127.0.0.1, 2 requests in all\n" in out
    assert "  today: $0.02, " in out
    assert "bert (…" in out
    assert "  never used\n" in out


def test_a_key_alone_enables_the_api_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "api-server" not in read_gateway_settings().platforms
    with pytest.raises(Misconfigured, match="hermes gateway keys add NAME"):
        ApiServer(PlatformSettings("api-server"), tmp_path)
    add(capsys, "anna")
    settings = read_gateway_settings().platforms["api-server"]
    assert settings.enabled
    ApiServer(settings, tmp_path)
    run("revoke", "anna")
    with pytest.raises(Misconfigured):
        ApiServer(settings, tmp_path)


async def test_a_key_file_that_another_program_changed_is_not_used(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_api_gateway() as gateway:
        key = await asyncio.to_thread(add, capsys, "anna", "--requests-per-minute", "1000")
        file = gateway_folder() / "api_keys.json"
        original = file.read_bytes()
        await ask(gateway, [user("hello")], key=key)
        for changed in (original.replace(b"1000", b"9000"), b"{}", b"nonsense", b'{"keys": []}'):
            file.write_bytes(changed)
            await ask(gateway, [user("hello")], key=key)
            with pytest.raises(errors.BadConfig, match="is not used"):
                KeyFile(gateway_folder()).list_keys()
            assert await asyncio.to_thread(run, "list") == 1
            assert "Traceback" not in capsys.readouterr().err
        assert "the keys stay as they were" in caplog.text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["add", "a b"], 2),
        (["add", ""], 2),
        (["add", "x" * 65], 2),
        (["add", "x", "--cost-per-day", "-1"], 2),
        (["add", "x", "--cost-per-day", "nan"], 2),
        (["add", "x", "--tokens-per-day", "1.5"], 2),
        (["add", "x", "--expires", "soon"], 2),
        (["add", "x", "--expires", "2001-01-01"], 2),
        (["add", "x", "--model", "a", "--model", "none"], 2),
        (["limit", "x"], 2),
        (["limit", "x", "--tokens-per-day", "1"], 1),
        (["revoke", "x"], 1),
    ],
)
def test_bad_input_is_refused_in_one_line(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = run(*words)
    except SystemExit as problem:
        ended = int(problem.code or 0)
    out, err = capsys.readouterr()
    assert (ended, out, err.count("\n")) == (code, "", 1)
    assert not (gateway_folder() / "api_keys.json").exists()


def test_names_that_differ_only_in_case_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    add(capsys, "anna")
    assert run("add", "Anna") == 1
    assert "names must differ" in capsys.readouterr().err


def test_every_limit_can_be_set_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        *("--requests-per-minute", "1", "--concurrent-requests", "2", "--cost-per-day", "$3"),
        *("--cost-per-month", "4.5", "--tokens-per-day", "5", "--tokens-per-month", "6"),
        *("--model", "m", "--expires", "8w"),
    ]
    add(capsys, "anna", *options)
    file = KeyFile(gateway_folder())
    limits = file.find_limits("anna")
    assert limits[:7] == (1, 2, 3.0, 4.5, 5, 6, ("m",))
    assert limits.expires_at == pytest.approx(clock.now() + 56 * clock.DAY, abs=60)
    removed = [option if option.startswith("--") else "none" for option in options]
    assert run("limit", "anna", *removed) == 0
    assert file.find_limits("anna") == KeyLimits()
    assert capsys.readouterr().out == "Limits of anna: none.\n"
