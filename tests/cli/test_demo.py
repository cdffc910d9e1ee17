"""`hermes demo` shows the features within a minute. It changes no file of the person."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hermes.cli.demo import HINT
from hermes.demo.samples import SAMPLES
from hermes.session_kinds import SOURCES
from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, Hermes
from tests.terminal import Terminal


def test_the_demo_shows_everything_and_leaves_nothing(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    shown = hermes("demo", TMPDIR=str(tmp_path / "tmp"))
    assert (shown.returncode, shown.stderr) == (0, "")
    for seen in (
        "showing 12 of",
        ">>>retry<<< >>>budget<<<",
        ">>>桂林<<<",
        "└─ continued:",
        "From your conversations:",
        "❯ Type to search titles and messages",
        "↻ Resumed session",
        "Previous Conversation",
        "Hermes Insights",
        "Previous Conversation",
    ):
        assert seen in shown.stdout
    assert not home.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_on_a_terminal_the_demo_waits_between_screens(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    os.environ["TMPDIR"] = str(tmp_path / "tmp")
    try:
        with Terminal([*COMMAND, "demo"]) as terminal:
            terminal.answers = True
            for number, seen in enumerate(("From your conversations:", "showing 12 of", ">>>桂林<<<"), 1):
                terminal.sees(f"{number}/8  ", seen)
                terminal.sees_behind(f"{number}/8  ", HINT)
                terminal.is_asked_behind(HINT)
                assert f"{number + 1}/8  " not in terminal.output
                terminal.types("q" if number == 3 else "\r")
            terminal.sees("To start your first conversation: hermes")
            assert terminal.ends() == 0
            assert "4/8  " not in terminal.output
    finally:
        del os.environ["TMPDIR"]
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_closing_the_window_leaves_nothing(tmp_path: Path, ending: signal.Signals) -> None:
    (tmp_path / "tmp").mkdir()
    here = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    # A signal can interrupt the import of a module. Python then leaves the open file to the garbage
    # collector.
    command = [COMMAND[0], "-W", "ignore::ResourceWarning", *COMMAND[3:], "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=here) as demo:
        assert demo.stdout is not None
        assert b"sample sessions" in demo.stdout.readline()
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        demo.send_signal(ending)
        assert demo.communicate(timeout=60)[1] == b""
    assert demo.returncode == 128 + ending
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_home_can_be_kept_and_contains_every_source(hermes: Hermes, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert hermes("demo", "--keep", str(kept)).returncode == 0
    with SessionDB(kept / "state.db") as db:
        assert {row["source"] for row in db.list_sessions_rich(limit=1000)} == set(SOURCES)
        assert db.verify().ok
        assert db.named("schema migration").id is not None
    again = hermes("demo", "--keep", str(kept))
    assert (again.returncode, again.stderr) == (1, f"hermes: {kept} is not empty\n")


def test_no_two_samples_have_the_same_title() -> None:
    titles = [sample.title for sample in SAMPLES if sample.title]
    assert len(titles) == len(set(titles))
