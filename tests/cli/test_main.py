"""The `hermes` command itself: its help, its version, exit codes and one-line errors."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

import hermes as package
from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, AddSession, Hermes


def one_complaint(stderr: str) -> str:
    assert stderr.startswith("hermes: ")
    assert stderr.count("\n") == 1
    return stderr


def test_the_command_shows_its_help(hermes: Hermes) -> None:
    result = hermes("--help")
    assert result.returncode == 0
    assert "usage: hermes" in result.stdout
    assert "sessions" in result.stdout
    assert result.stderr == ""


def test_the_help_begins_with_the_chat(hermes: Hermes) -> None:
    told = hermes("--help").stdout
    places = [told.index(f"\n  {flag}") for flag in ("-c, --continue", "-r, --resume", "-q, --query")]
    assert places == sorted(places)
    assert told.index("QUESTION") < places[0]
    assert places[-1] < told.index("\ncommands:")


def test_the_command_runs_as_a_python_module(hermes: Hermes, db: SessionDB) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hermes", "sessions", "list"],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, hermes("sessions", "list").stdout)


def test_a_group_alone_shows_its_help(hermes: Hermes) -> None:
    result = hermes("sessions")
    assert result.returncode == 0
    assert "usage: hermes sessions" in result.stdout
    for command in ("list", "verify", "repair", "backup", "restore", "optimize"):
        assert command in result.stdout


def test_the_version_is_the_same_everywhere(hermes: Hermes) -> None:
    result = hermes("--version")
    assert result.returncode == 0
    assert result.stdout == f"hermes {package.__version__}\n"
    assert version("hermes-sessions") == package.__version__


@pytest.mark.parametrize(
    "words",
    [
        ("no-such-command",),
        ("--no-such-option",),
        ("sessions", "no-such-command"),
        ("sessions", "list", "--no-such-option"),
        ("sessions", "list", "--limit", "0"),
        ("sessions", "list", "--limit", "-3"),
        ("sessions", "list", "--limit", "many"),
        ("sessions", "list", "--limit", "9" * 5000),
        ("sessions", "list", "--source"),
        ("sessions", "list", "--source", "\udcff"),
        ("sessions", "restore"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(hermes: Hermes, words: tuple[str, ...]) -> None:
    result = hermes(*words)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "--help" in one_complaint(result.stderr)


NOT_DONE = {
    "delete": ("sessions", "delete", "one"),
    "purge": ("sessions", "delete", "--purge", "one"),
    "trash": ("sessions", "trash", "empty"),
    "prune": ("sessions", "prune", "--older-than", "0"),
    "thin": ("sessions", "thin", "--older-than", "0"),
    "restore": ("sessions", "restore", "copy.db"),
    "scrub": ("sessions", "scrub"),
    "browse": ("sessions", "browse", "--source", "cli"),
    "nothing to browse": ("sessions", "browse", "--source", "sms"),
    "search": ("search", "zebra"),
    "show": ("sessions", "show", "zebra"),
    "setup": ("setup",),
    "a model that is out of reach": ("setup", "--base-url", "http://127.0.0.1:1/v1", "--model", "m"),
    "gateway setup": ("gateway", "setup"),
}


@pytest.mark.parametrize("words", NOT_DONE.values(), ids=NOT_DONE)
def test_the_reason_for_a_failure_is_one_line_on_stderr(
    hermes: Hermes, add_session: AddSession, db: SessionDB, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Only the reason is on stderr. Other output, such as a question, is on stdout."""
    add_session("one", "hello", age=10)
    db.end_session("one", "cli_close")
    add_session("gone", "bye")
    db.trash_session("gone")
    add_session("tool", "x" * 99_999, age=10)
    db.append_message("tool", "tool", "y" * 99_999, tool_name="cat", timestamp=time.time() - 10)
    db.end_session("tool", "cli_close")
    db.backup(tmp_path / "copy.db")
    typed: dict[tuple[str, ...], str] = {("sessions", "scrub"): "hello\n", ("sessions", "browse"): "\n"}
    given = [str(tmp_path / word) if word == "copy.db" else word for word in words]
    result = hermes(*given, stdin=typed.get(words[:2], "n\n"))
    assert result.returncode == 1
    one_complaint(result.stderr)
    assert "ancelled" not in result.stdout
    assert "No sessions found" not in result.stdout


def test_a_usage_error_names_the_help_and_the_intended_command(hermes: Hermes) -> None:
    assert "see 'hermes sessions list --help'" in hermes("sessions", "list", "--no-such-option").stderr
    assert "there is no command 'lst'; did you mean 'list'?" in hermes("sessions", "lst").stderr


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_ignored(stream: str, add_session: AddSession, db: SessionDB) -> None:
    add_session("one", "hello")
    ask = shlex.join([*COMMAND, "sessions", "delete", "one"])
    done = subprocess.run(["sh", "-c", f"{ask} {stream}"], input=b"n\n", capture_output=True, timeout=60)
    said = b"" if stream == "2>&-" else b"hermes: Cancelled.\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert db.session_count() == 1


def test_ctrl_c_while_it_still_loads_is_one_line_and_exit_130() -> None:
    program = """
import sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "hermes.cli.command":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Impatient())
from hermes.cli.start import start
sys.exit(start())"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"hermes: interrupted\n")


def test_a_missing_named_store_is_not_created(hermes: Hermes, tmp_path: Path) -> None:
    missing = tmp_path / "typo.db"
    result = hermes("sessions", "list", "--store", str(missing))
    assert (result.returncode, result.stderr) == (1, f"hermes: there is no store at {missing}\n")
    assert not missing.exists()
    (tmp_path / "one.jsonl").write_text('{"id": "one", "source": "cli", "messages": []}\n')
    assert hermes("sessions", "import", str(tmp_path / "one.jsonl"), "--store", str(missing)).returncode == 0
    assert missing.exists()


READING = {
    "list": ("sessions", "list"),
    "list as JSON": ("sessions", "list", "--json"),
    "search": ("search", "zebra"),
    "show": ("sessions", "show", "zebra"),
    "tree": ("sessions", "tree", "zebra"),
    "stats": ("sessions", "stats"),
    "export": ("sessions", "export", "-"),
    "insights": ("insights",),
    "browse": ("sessions", "browse"),
    "trash": ("sessions", "trash", "list"),
    "verify": ("sessions", "verify"),
    "delete": ("sessions", "delete", "zebra", "--yes"),
    "prune": ("sessions", "prune", "--older-than", "1", "--dry-run"),
    "doctor": ("doctor",),
    "continue": ("-c", "-q", "hello"),
    "resume": ("-r", "zebra", "-q", "hello"),
}


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_in_a_home_that_does_not_exist_nothing_is_created(
    hermes: Hermes, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """If HERMES_HOME is mistyped, the error names the missing folder and says how a store is created."""
    mistyped = tmp_path / "mistyped"
    result = hermes(*words, HERMES_HOME=str(mistyped))
    assert result.returncode == 1
    told = result.stdout if words == ("doctor",) else result.stderr
    assert str(mistyped / "state.db") in told
    assert "first conversation" in told
    if words != ("doctor",):
        assert f"HERMES_HOME names a folder that does not exist: {mistyped}" in told
    assert not mistyped.exists()


def test_a_home_without_a_store_is_not_reported_as_mistyped(hermes: Hermes, home: Path) -> None:
    assert hermes("setup", "--offline").returncode == 0
    result = hermes("sessions", "list")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"hermes: there is no store at {home / 'state.db'}",
        "  a store begins with the first conversation (`hermes`) or with `hermes sessions import`",
    ]


STORE_USERS = {
    "list": ("sessions", "list"),
    "search": ("search", "zebra"),
    "search of sessions": ("sessions", "search", "zebra"),
    "show": ("sessions", "show", "other"),
    "insights": ("insights", "--json"),
    "doctor": ("doctor", "--json"),
    "resume": ("-r", "other", "-q", "list", "-m", "offline"),
    "chat": ("chat", "-q", "list", "-m", "offline"),
    "question": ("list my conversations", "-m", "offline", "--json"),
}


@pytest.mark.parametrize("written", [("--store", "{}"), ("--store={}",)], ids=["apart", "joined"])
@pytest.mark.parametrize("words", STORE_USERS.values(), ids=STORE_USERS)
def test_a_store_is_named_before_any_command(
    hermes: Hermes, home: Path, tmp_path: Path, words: tuple[str, ...], written: tuple[str, ...]
) -> None:
    with SessionDB(tmp_path / "other.db") as other:
        other.create_session("other", "cli")
        other.append_message("other", "user", "zebra crossing")
    result = hermes(*(word.format(tmp_path / "other.db") for word in written), *words)
    assert (result.returncode, result.stdout != "") == (0, True), result.stderr
    assert not (home / "state.db").exists()


def test_a_store_can_be_named_behind_the_group_too(
    hermes: Hermes, add_session: AddSession, tmp_path: Path
) -> None:
    add_session("mine", "hello")
    with SessionDB(tmp_path / "other.db") as other:
        other.create_session("other", "cli")
        other.append_message("other", "user", "hi")
    store = str(tmp_path / "other.db")
    assert "other" in hermes("sessions", "--store", store, "list").stdout
    assert "mine" in hermes("--store", "wrong.db", "sessions", "list", "--store", str(home_store())).stdout


def home_store() -> Path:
    return Path(os.environ["HERMES_HOME"]) / "state.db"


def test_a_command_without_a_store_takes_none(hermes: Hermes) -> None:
    result = hermes("--store", "x.db", "config", "path")
    assert result.returncode == 2
    assert "`hermes config path` uses no store" in one_complaint(result.stderr)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv here")
def test_a_store_without_write_permission_can_be_read(
    add_session: AddSession, db: SessionDB, home: Path, tmp_path: Path
) -> None:
    """Root can write to any file, so the test first drops its privileges."""
    add_session("one", "hello", title="garden plans")
    db.close()
    powerless = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    home.chmod(0o500)
    (home / "state.db").chmod(0o400)
    try:
        for words in (
            *(("list",), ("show", "garden"), ("stats",), ("export", "-"), ("search", "hello"), ("verify",)),
            ("backup", str(tmp_path / "copy.db")),
        ):
            done = subprocess.run(
                [*powerless, *COMMAND, "sessions", *words], capture_output=True, encoding="utf-8", timeout=60
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout
        done = subprocess.run(
            [*powerless, *COMMAND, "sessions", "rename", "one", "two"],
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert done.returncode == 1
        assert "read-only" in one_complaint(done.stderr)
        looked = subprocess.run(
            [*powerless, *COMMAND, "sessions", "repair", "--check-only"],
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert looked.returncode == 0
        assert "it was only read" in one_complaint(looked.stderr)
        assert looked.stdout == f"{home / 'state.db'}: 1 session, 1 message\nok\n"
        told_what = subprocess.run(
            [*powerless, *COMMAND, "doctor"], capture_output=True, encoding="utf-8", timeout=60
        )
        assert f"allow yourself to write it: `chmod u+w {home / 'state.db'}`" in told_what.stdout
        assert "chown" not in told_what.stdout
    finally:
        home.chmod(0o700)


def test_a_home_that_cannot_be_made_is_one_line_and_exit_1(hermes: Hermes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    result = hermes("sessions", "list", HERMES_HOME=str(tmp_path / "file" / "home"))
    assert result.returncode == 1
    assert result.stdout == ""
    one_complaint(result.stderr)


@pytest.mark.parametrize("source", ["", " \t"])
@pytest.mark.parametrize(
    "words", [("chat", "-q", "hello"), ("sessions", "list"), ("sessions", "export", "-")]
)
def test_a_blank_source_is_wrong_usage(hermes: Hermes, words: tuple[str, ...], source: str) -> None:
    result = hermes(*words, "--source", source)
    assert result.returncode == 2
    assert "a source must not be empty" in one_complaint(result.stderr)
    assert result.stdout == ""


def test_a_blank_source_in_the_environment_counts_as_none(hermes: Hermes, home: Path) -> None:
    result = hermes("chat", "-q", "hello", "-m", "offline", HERMES_SESSION_SOURCE="  ")
    assert result.returncode == 0, result.stderr
    with SessionDB(home / "state.db") as db:
        assert [row["source"] for row in db.list_sessions_rich()] == ["cli"]
