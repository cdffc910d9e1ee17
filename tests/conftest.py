"""Fixtures and settings of every test: a temporary home, a normal umask, warnings as errors, and no silent
skips."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import temporary_folders, tiers
from tests.skip_policy import SkipPolicy
from tests.sqlite_only import is_sqlite_only

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from tests.agent.openai_server import ModelServer

IN_CI = os.environ.get("CI", "").strip().lower() in {"1", "true", "yes"}
NORMAL_UMASK = 0o022
AUTHORITY = Path(__file__).with_name("authority.pem")
"""The only authority that HTTP clients trust. To load those of the system takes 20 milliseconds per client."""
MODEL_VARIABLES = (
    "HERMES_MODEL",
    "OPENAI_BASE_URL",
    "OLLAMA_HOST",
    "SESSION_IDLE_MINUTES",
    "SESSION_RESET_HOUR",
)
PLATFORM_VARIABLES = ("TELEGRAM_", "MATRIX_", "WEBHOOK_", "API_SERVER_")

# The speed of example generation depends on the machine, not on the product.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
for name, examples in tiers.EXAMPLES.items():
    settings.register_profile(name, PATIENT, max_examples=examples, derandomize=IN_CI)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=tiers.TIERS, help="run the tests of one target of the Makefile only")


def pytest_configure(config: pytest.Config) -> None:
    profile = config.getoption("tier") or os.environ.get(tiers.PROFILE) or "test"
    os.environ[tiers.PROFILE] = profile  # inherited by a pytest that a test starts
    settings.load_profile(profile)
    is_worker = hasattr(config, "workerinput")
    if is_worker:  # workers inherit the environment of the controller, which also receives the reports
        return
    temporary_folders.choose(config.getoption("tier"), config.getoption("basetemp"))
    if IN_CI:
        config.pluginmanager.register(SkipPolicy(Path(__file__).with_name("allowed_skips.txt")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for `-n auto`. Tests wait for about half of their time, so there are more
    processes than processors."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors + (processors + 1) // 2


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_sqlite_only(item.path):
        item.add_marker("sqlite")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_left_out = config.getoption("tier") == "fast" and tiers.is_slow(collection_path)
    return True if is_left_out else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier: tiers.Tier | None = config.getoption("tier")
    if tier is None:
        return
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (chosen if tiers.is_in_tier(tier, get_markers(item)) else left_out).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Exempt the modules and the collected tests from garbage collection: they stay until the process ends."""
    gc.collect()
    gc.freeze()


def get_markers(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


@pytest.fixture(scope="session")
def memory_factory() -> Iterator[pytest.TempPathFactory | None]:
    """Create temporary folders in memory for the tests of this process. The value is None if the tests use
    the disk."""
    with temporary_folders.make_factory() as factory:
        yield factory


@pytest.fixture(scope="module")
def tmp_path_factory(
    request: pytest.FixtureRequest, memory_factory: pytest.TempPathFactory | None
) -> pytest.TempPathFactory:
    """Create the temporary folders of a module and every `tmp_path`: in memory if possible."""
    if memory_factory is None or temporary_folders.needs_disk(request.path):
        on_disk: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        return on_disk
    return memory_factory


@pytest.fixture(scope="session", autouse=True)
def shared_ssl_context() -> Iterator[None]:
    """Let the HTTP clients of this process that ignore `SSL_CERT_FILE` load the authorities of the system once."""
    import httpcore2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpcore2.default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a home for this test. The folder does not exist yet.

    HOME is a temporary folder too, so that a test cannot reach the real files of a person. HOME is not below
    `tmp_path`, because the program ignores a workspace that contains a whole home.
    """
    person = tmp_path.with_name(f"{tmp_path.name}-person")
    person.mkdir()
    hermes_home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.setenv("HERMES_HOME", str(hermes_home))
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name in MODEL_VARIABLES or name.startswith(PLATFORM_VARIABLES):
            monkeypatch.delenv(name)
    before = os.umask(NORMAL_UMASK)
    yield hermes_home
    os.umask(before)
    # pytest reads the whole parent folder to number the next `tmp_path`, so that folder must stay small.
    shutil.rmtree(person, ignore_errors=True)


@pytest.fixture
def in_zone() -> Iterator[Callable[[str], None]]:
    """Return a function that sets the local time zone for the rest of the test: `in_zone("Europe/Berlin")`."""
    before = os.environ.get("TZ")

    def choose(name: str | None) -> None:
        os.environ.pop("TZ", None) if name is None else os.environ.update(TZ=name)
        time.tzset()

    yield choose
    choose(before)


@pytest.fixture(scope="session")
def new_store() -> bytes:
    """Return the content of a new, empty store file. Tests write it instead of creating a store, because that
    takes three times as long as opening one."""
    from hermes_state import SessionDB

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_HOME", folder)
        patch.delenv("HERMES_STORE_KEY", raising=False)
        with SessionDB() as store:
            file = store.db_path
        return file.read_bytes()


@pytest.fixture
def db(home: Path, new_store: bytes) -> Iterator[SessionDB]:
    """Open a store in the home of this test and close it at the end."""
    from hermes_state import SessionDB

    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "state.db"
    file.touch(mode=0o600)
    file.write_bytes(new_store)
    store = SessionDB()
    yield store
    store.close()


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """Run a local OpenAI-compatible server that sends the answers that the test sets."""
    from tests.agent.openai_server import ModelServer

    server = ModelServer()
    yield server
    server.close()
