"""The other names in `hermes_state`: its constants, and its messages about a store that is not available."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes_state
from hermes_state import SessionDB, format_session_db_unavailable, get_last_init_error

HEAVY = ("asyncio", "markdown_it", "pydantic", "rich", "sqlite3")
NOT_FOR_OPENING = (
    *HEAVY,
    *("dataclasses", "inspect", "json", "logging", "msgspec", "shlex", "shutil", "subprocess", "tempfile"),
    *("hermes.recall", "hermes.db.scoped_store", "hermes.secrets", "hermes.terms"),
    *("hermes.store.query_tree", "hermes.store.spool.spool", "hermes.store.values"),
    *(
        "hermes.store.sqlite.search.index",
        "hermes.store.sqlite.search.substring",
        "hermes.store.sqlite.search.exact_search",
    ),
    *("hermes.store.sqlite.migrations.runner", "hermes.store.sqlite.encryption.recognition"),
)


@pytest.fixture(autouse=True)
def no_error_yet() -> Iterator[None]:
    before = get_last_init_error()
    hermes_state._set_last_init_error(None)
    yield
    hermes_state._set_last_init_error(before)


# Constants


def test_the_schema_version_is_11() -> None:
    assert hermes_state.SCHEMA_VERSION == 11


def test_the_default_path_follows_the_home_when_it_is_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hermes_state.DEFAULT_DB_PATH
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "elsewhere"))
    assert (before, hermes_state.DEFAULT_DB_PATH) == (home / "state.db", tmp_path / "elsewhere" / "state.db")


def test_the_write_constants_are_the_documented_ones() -> None:
    assert SessionDB._WRITE_MAX_RETRIES == 15
    assert (SessionDB._WRITE_RETRY_MIN_S, SessionDB._WRITE_RETRY_MAX_S) == (0.020, 0.150)
    assert SessionDB._CHECKPOINT_EVERY_N_WRITES == 50


def test_titles_have_at_most_100_characters() -> None:
    assert SessionDB.MAX_TITLE_LENGTH == 100


def test_the_schema_can_be_read_as_text() -> None:
    assert "CREATE TABLE IF NOT EXISTS sessions" in hermes_state.SCHEMA_SQL
    assert "CREATE TABLE IF NOT EXISTS messages" in hermes_state.SCHEMA_SQL


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NO_SUCH_NAME"):
        hermes_state.NO_SUCH_NAME  # noqa: B018


def test_importing_and_opening_load_nothing_heavy() -> None:
    program = (
        "import sys; from hermes_state import SessionDB; db = SessionDB(); db.create_session('a', 'cli');"
        f"db.append_message('a', 'user', 'hi'); db.close(); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_opening_and_listing_load_only_what_they_use(home: Path) -> None:
    with SessionDB() as db:
        db.create_session("a", "cli")
        db.append_message("a", "user", "hi")
    program = (
        "import sys; from hermes_state import SessionDB; db = SessionDB(); listed = db.list_sessions_rich();"
        f"db.close(); print(len(listed), [m for m in {NOT_FOR_OPENING!r} if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60
    )
    assert (result.stdout, result.stderr) == ("1 []\n", "")


# the query in the form in which the reference passes it to FTS5


@pytest.mark.parametrize(
    ("typed", "passed_on"),
    [
        ("chat-send", '"chat-send"'),
        ("docker-compose", '"docker-compose"'),
        ("config.yaml", '"config.yaml"'),
        ("my_func_name", '"my_func_name"'),
        ("hello AND", "hello"),
        ("OR hello", "hello"),
        ("hello not", "hello"),
        ('"hello world', "hello world"),
        ('"exact phrase"', '"exact phrase"'),
        ('"a-b" c-d', '"a-b" "c-d"'),
        ("docker deployment", "docker deployment"),
        ("docker OR kubernetes", "docker OR kubernetes"),
        ("deploy*", "deploy*"),
        ("deploy**", "deploy*"),
        ("***", ""),
        ("", ""),
        ("({^+})", ""),
    ],
)
def test_a_query_is_made_safe_for_fts5_as_documented(typed: str, passed_on: str) -> None:
    assert SessionDB._sanitize_fts5_query(typed) == passed_on


# A store that cannot be opened


def test_without_a_failure_there_is_no_cause() -> None:
    assert get_last_init_error() is None
    assert format_session_db_unavailable() == "Session database not available."
    assert format_session_db_unavailable("No history") == "No history."


def test_a_failed_opening_is_remembered_with_its_type_and_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(Exception, match=r".") as failure:
        SessionDB(db_path=tmp_path / "file" / "state.db")
    assert get_last_init_error() == f"{type(failure.value).__name__}: {failure.value}"


def test_a_later_success_does_not_clear_the_cause(tmp_path: Path) -> None:
    hermes_state._set_last_init_error("OSError: gone")
    SessionDB(tmp_path / "state.db").close()
    assert get_last_init_error() == "OSError: gone"


def test_the_cause_follows_the_prefix() -> None:
    hermes_state._set_last_init_error("OSError: gone")
    assert format_session_db_unavailable() == "Session database not available: OSError: gone."
    assert format_session_db_unavailable(prefix="No history") == "No history: OSError: gone."


@pytest.mark.parametrize("mark", ["locking protocol", "Not Authorized", "disk I/O error"])
def test_a_cause_related_to_wal_gets_a_hint(mark: str) -> None:
    hermes_state._set_last_init_error(f"OperationalError: {mark}")
    text = format_session_db_unavailable()
    assert text.startswith(f"Session database not available: OperationalError: {mark}")
    assert all(word in text for word in ("NFS", "SMB", "FUSE", "sqlite.org/wal.html"))
    assert text.endswith(".")
