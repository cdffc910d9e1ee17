"""What every test gets: its own home, a normal umask, warnings as errors, and no silent skips."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.skip_policy import SkipPolicy
from tests.sqlite_only import is_sqlite_only

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from tests.agent.openai_server import ModelServer

IN_CI = os.environ.get("CI", "").strip().lower() in {"1", "true", "yes"}
NORMAL_UMASK = 0o022
MODEL_VARIABLES = (
    "HERMES_MODEL",
    "OPENAI_BASE_URL",
    "OLLAMA_HOST",
    "SESSION_IDLE_MINUTES",
    "SESSION_RESET_HOUR",
)
PLATFORM_VARIABLES = ("TELEGRAM_", "MATRIX_", "WEBHOOK_", "API_SERVER_")

# How fast examples are made says something about the machine, not about the product.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", PATIENT, max_examples=50)
settings.register_profile("ci", PATIENT, max_examples=300, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if IN_CI else "dev"))


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if IN_CI and not is_worker:
        config.pluginmanager.register(SkipPolicy(Path(__file__).with_name("allowed_skips.txt")))


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_sqlite_only(item.path):
        item.add_marker("sqlite")


@pytest.fixture(autouse=True)
def home(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A home of the test's own, not made yet. Nobody's real files are within reach.

    The person's folder is not below `tmp_path`: a workspace that holds a whole home counts for nothing.
    """
    person = tmp_path_factory.mktemp("person")
    hermes_home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("HERMES_HOME", str(hermes_home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name in MODEL_VARIABLES or name.startswith(PLATFORM_VARIABLES):
            monkeypatch.delenv(name)
    before = os.umask(NORMAL_UMASK)
    yield hermes_home
    os.umask(before)


@pytest.fixture
def in_zone() -> Iterator[Callable[[str], None]]:
    """`in_zone("Europe/Berlin")`: local time is that of a place, for the rest of the test and its commands."""
    before = os.environ.get("TZ")

    def choose(name: str | None) -> None:
        os.environ.pop("TZ", None) if name is None else os.environ.update(TZ=name)
        time.tzset()

    yield choose
    choose(before)


@pytest.fixture
def db(home: Path) -> Iterator[SessionDB]:
    """The store of this test's home, closed at the end."""
    from hermes_state import SessionDB

    store = SessionDB()
    yield store
    store.close()


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A local OpenAI-compatible server that says what the test tells it to."""
    from tests.agent.openai_server import ModelServer

    server = ModelServer()
    yield server
    server.close()
