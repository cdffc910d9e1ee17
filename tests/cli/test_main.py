"""The command itself: help, version, exit codes, one-line errors."""

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
from tests.cli.conftest import COMMAND, Hermes, Told


def one_complaint(stderr: str) -> str:
    assert stderr.startswith("hermes: ")
    assert stderr.count("\n") == 1
    return stderr


def test_it_shows_its_help(hermes: Hermes) -> None:
    result = hermes("--help")
    assert result.returncode == 0
    assert "usage: hermes" in result.stdout
    assert "sessions" in result.stdout
    assert result.stderr == ""


def test_it_is_the_command_of_its_interpreter_too(hermes: Hermes) -> None:
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


def test_it_says_its_version_in_one_voice(hermes: Hermes) -> None:
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
def test_why_something_was_not_done_is_one_line_on_stderr(
    hermes: Hermes, told: Told, db: SessionDB, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Earlier output, such as the question, is on stdout."""
    told("one", "hello", age=10)
    db.end_session("one", "cli_close")
    told("gone", "bye")
    db.trash_session("gone")
    told("tool", "x" * 99_999, age=10)
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


def test_a_complaint_names_the_help_that_helps_and_the_command_that_was_meant(hermes: Hermes) -> None:
    assert "see 'hermes sessions list --help'" in hermes("sessions", "list", "--no-such-option").stderr
    assert "there is no command 'lst'; did you mean 'list'?" in hermes("sessions", "lst").stderr


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
def test_a_stream_that_is_closed_is_nobody_listening(stream: str, told: Told, db: SessionDB) -> None:
    told("one", "hello")
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


def test_a_store_that_was_named_and_is_not_there_is_not_made(hermes: Hermes, tmp_path: Path) -> None:
    missing = tmp_path / "typo.db"
    result = hermes("sessions", "list", "--store", str(missing))
    assert (result.returncode, result.stderr) == (1, f"hermes: there is no store at {missing}\n")
    assert not missing.exists()
    (tmp_path / "one.jsonl").write_text('{"id": "one", "source": "cli", "messages": []}\n')
    assert hermes("sessions", "import", str(tmp_path / "one.jsonl"), "--store", str(missing)).returncode == 0
    assert missing.exists()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv here")
def test_what_cannot_be_written_can_be_read(told: Told, db: SessionDB, home: Path, tmp_path: Path) -> None:
    """Root can write anywhere, so the test drops its privileges first."""
    told("one", "hello", title="garden plans")
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
