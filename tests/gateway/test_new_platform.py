"""A new platform needs only a folder and one line in the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.cli.main import main
from hermes.config import config_file, dotenv
from hermes.config.settings import read_settings
from hermes.gateway import registry
from hermes.gateway.inbound_events import Source
from hermes.gateway.platform_options import read_options
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.gateway.settings import read_gateway_settings
from tools.settings_tables import make_table

DECLARATION = """
from typing import Annotated

from hermes.config.declarations import Platform, Question, Section, Setting
from hermes.config.setting_kinds import ANY_TEXT, PORT, TEXT


class PigeonOptions(Section, frozen=True):
    loft: Annotated[str | None, Setting(TEXT, "where they live", question=Question("Loft", "loft", "NAME"))] = None
    ring_key: Annotated[
        str | None,
        Setting(ANY_TEXT, "what tells ours apart", is_secret=True, question=Question("Ring", "token", "T")),
    ] = None
    port: Annotated[int, Setting(PORT, "where they land")] = 4711


PLATFORM = Platform(
    title="Carrier pigeon",
    adapter="pigeons.adapter:Pigeon",
    options=PigeonOptions,
    needs=(("loft",), ("ring_key",)),
    extra="gateway",
    modules=("uvicorn",),
    summary="short notes, in good weather",
    answer_format="A note holds one line.",
    has_personal_ids=True,
    identify=lambda values, fetch: f"the loft {values['loft']}",
)
"""
KEY = "pigeon-ring-0123456789"


@pytest.fixture(autouse=True)
def pigeon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a folder with the declaration of a new platform, and add its line to the registry."""
    folder = tmp_path / "packages" / "pigeons"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "declaration.py").write_text(DECLARATION)
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setitem(registry.PLATFORMS, "pigeon", registry.load_declaration("pigeons.declaration"))
    monkeypatch.delitem(sys.modules, "pigeons.declaration")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_platform_is_in_the_configuration(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "config", "set", "platforms.pigeon.port", "99999")[0] == 1
    assert run(capsys, "config", "set", "platforms.pigeon.port", "4712")[0] == 0
    assert run(capsys, "config", "get", "platforms.pigeon.port")[1] == "4712\n"
    assert run(capsys, "config", "set", "PIGEON_RING_KEY", KEY)[0] == 0
    assert dotenv.read() == {"PIGEON_RING_KEY": KEY}
    _, listed, _ = run(capsys, "config", "list")
    assert "platforms.pigeon.port" in listed
    assert KEY not in listed
    assert "set it with" in run(capsys, "config", "set", "platforms.pigeon.ring_key", KEY)[2]
    assert (
        "did you mean platforms.pigeon.loft?"
        in run(capsys, "config", "set", "platforms.pigeon.lofft", "x")[2]
    )
    _, offered, _ = run(capsys, "completion", "words", "--", "config", "set", "platforms.pigeon.p")
    assert offered == "platforms.pigeon.port\twhere they land\n"
    assert read_settings().warning is None
    config_file.change("platforms.pidgeon.port", 1)
    assert "unknown setting: platforms.pidgeon; did you mean platforms.pigeon?" in (
        read_settings().warning or ""
    )


def test_its_options_are_read_from_every_source(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.change("platforms.pigeon.loft", "north")
    monkeypatch.setenv("PIGEON_RING_KEY", KEY)
    monkeypatch.setenv("PIGEON_ALLOWED_USERS", "ann")
    platform = read_gateway_settings().enabled["pigeon"]
    assert platform.allowed_users == {"ann"}
    options = read_options(registry.PLATFORMS["pigeon"].options, platform)
    assert [getattr(options, name) for name in ("loft", "ring_key", "port")] == ["north", KEY, 4711]
    assert read_gateway_settings().secrets == {KEY}
    assert KEY not in repr(platform)


def test_the_setup_asks_for_what_it_needs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("gateway", "setup", "--platform", "pigeon", "--token", KEY)
    assert run(capsys, *given)[2] == "hermes: --loft is missing\n"
    code, out, err = run(capsys, *given, "--loft", "north")
    assert (code, err) == (0, "")
    assert "Connected. The bot is the loft north." in out
    assert config_file.read() == {"platforms": {"pigeon": {"loft": "north"}}}
    assert dotenv.read() == {"PIGEON_RING_KEY": KEY}
    assert (
        "telegram needs no --loft"
        in run(capsys, "gateway", "setup", "--platform", "telegram", "--token", "1:A", "--loft", "x")[2]
    )


def test_the_status_and_the_pairing_know_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config_file.change("platforms.pigeon.enabled", True)
    _, out, _ = run(capsys, "gateway", "status")
    assert "pigeon: not connected: set PIGEON_LOFT, PIGEON_RING_KEY" in out
    assert "Carrier pigeon" in run(capsys, "gateway", "pair", "pigeon")[1]
    assert "Carrier pigeon: PIGEON_LOFT, PIGEON_RING_KEY" in run(capsys, "gateway", "run")[2]


def test_the_tables_of_the_documentation_name_it() -> None:
    row = "| Carrier pigeon | `hermes-sessions[gateway]` | `PIGEON_LOFT`, `PIGEON_RING_KEY` | short notes,"
    assert row in make_table("platforms")
    row = "| `platforms.pigeon.port` | `PIGEON_PORT` | `4711` | a whole number from 0 to 65535 | where they land |"
    assert row in make_table("platform options")
    assert "| `--loft NAME` | Carrier pigeon: where they live |" in make_table("setup flags")


def test_the_prompt_describes_the_platform(capsys: pytest.CaptureFixture[str]) -> None:
    source = Source.from_dict(
        {"platform": "pigeon", "chat_id": "5551234", "chat_type": "dm", "user_id": "5551234"}
    )
    prompt = build_session_context_prompt(
        source, shared=False, platforms=["pigeon"], home_channels={}, redact_pii=True
    )
    assert "A note holds one line." in prompt
    assert "5551234" not in prompt
    _, offered, _ = run(capsys, "completion", "words", "--", "sessions", "list", "--source", "pig")
    assert offered == "pigeon\t\n"


def test_the_registry_and_the_settings_are_read_without_an_sdk() -> None:
    program = (
        "import json, sys; from hermes.gateway import registry; from hermes.config.key_lookup import list_keys; "
        "list(list_keys()); "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    known = {"__main__", "_cython", "hermes", "msgspec", "typing_extensions"}
    assert done.stderr == ""
    assert set(json.loads(done.stdout)) <= known
