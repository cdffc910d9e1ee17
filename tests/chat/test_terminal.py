"""The real chat in a real terminal, as a person sees it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.chat.busy_notice import BUSY_S
from hermes.store.processes import is_gone
from hermes_state import SessionDB

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Window:
    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]

    def start(self, name: str, *words: str) -> None:
        command = shlex.join([sys.executable, "-m", "tests.chat.echo", *words])
        self._run(
            "new-session", "-d", "-s", name, "-x", "100", "-y", "60", "-c", str(ROOT), f"{command}; cat"
        )

    def keys(self, name: str, *keys: str) -> None:
        self._run("send-keys", "-t", name, *keys)

    def resize(self, name: str, width: int, height: int) -> None:
        self._run("resize-window", "-t", name, "-x", str(width), "-y", str(height))

    def paste(self, name: str, text: str, file: Path) -> None:
        file.write_text(text)
        self._run("load-buffer", str(file))
        self._run("paste-buffer", "-p", "-t", name)

    def screen(self, name: str) -> str:
        return self._run("capture-pane", "-p", "-t", name)

    def process(self, name: str) -> int:
        """Return the pid of the chat process that the shell of the window has started."""
        shell = self._run("list-panes", "-t", name, "-F", "#{pane_pid}").strip()
        return int(
            subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True).stdout.split()[
                0
            ]
        )

    def sees(self, name: str, *texts: str) -> str:
        """Wait until all of these texts are on the screen."""
        until = time.monotonic() + PATIENCE_S
        while not all(text in (screen := self.screen(name)) for text in texts):
            assert time.monotonic() < until, screen
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    made = Window(tmp_path_factory.mktemp("t") / "s")
    yield made
    made.close()


def stored(db: SessionDB, title: str) -> list[object]:
    session = db.tip(title)
    assert session is not None
    return [row["content"] for row in db.get_context(session) if row["role"] == "user"]


def last_answer(db: SessionDB, title: str) -> str:
    """Return the stored text of the last answer, or an empty text if there is no answer yet."""
    row = db.get_context(db.tip(title) or "")[-1]
    return str(row["content"]) if row["role"] == "assistant" else ""


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / 0.05)):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to it")


def test_a_day_in_the_terminal(window: Window, db: SessionDB, tmp_path: Path) -> None:
    window.start("one")
    window.sees("one", "❯", "new conversation", "echo")

    window.keys("one", "/title my project", "Enter", "line one", "Escape", "Enter", "line two", "Enter")
    window.sees("one", "Session title set: my project", "you said: line one\nline two", "my project · echo")

    window.keys("one", "slow 300", "Enter")
    window.sees("one", "0 1 2")
    window.resize("one", 40, 20)
    window.keys("one", "typed ahead", "C-c")
    window.sees("one", "■ stopped", "❯ typed ahead")
    window.resize("one", 100, 60)
    window.keys("one", "C-c")

    window.paste("one", "\n".join(["a long line of text"] * 15), tmp_path / "pasted")
    window.sees("one", "❯ [pasted #1: 15 lines, 299 characters]")
    window.keys("one", "Enter")
    window.sees("one", "you said: a long line", "❯\n")

    window.keys("one", "slow 299", "Enter")
    window.sees("one", "❯ slow 299")
    until(lambda: stored(db, "my project")[-1] == "slow 299")
    until(lambda: last_answer(db, "my project").startswith("0 1 2"))
    os.kill(window.process("one"), signal.SIGKILL)

    window.start("two", "-c", "my", "project")
    window.sees(
        "two",
        "↻ Resumed session",
        '"my project"',
        "◆ Hermes: 0 1 2",
        "Left open: the last answer is cut off, because the program ended",
        "my project · echo",
    )

    window.start("three", "-r", "my project")
    window.sees("three", "Another terminal (process", "1. follow", "2. take over", "3. branch")
    window.keys("three", "2", "Enter")
    window.sees("three", "You have taken over the conversation.", "my project · echo")
    window.keys("two", "mine", "Enter")
    window.sees("two", "another process has taken over", "3. branch")
    window.keys("two", "3", "Enter")
    window.sees("two", "A branch of", "my project (2)")
    window.keys("two", "Enter")
    window.sees("two", "you said: mine", "my project (2)")

    window.keys("three", "/undo", "Enter")
    window.sees("three", "Take back “slow 299” and all after it?", "> 3. no (n)")
    window.keys("three", "y", "Enter")  # an empty line sends nothing
    window.sees("three", "Took back “slow 299” (2 messages).", "❯ slow 299")
    assert len(stored(db, "my project")) == 3
    window.keys("three", "C-c", "/rewind undo", "Enter")
    window.sees("three", "Brought back 2 messages.")

    window.keys("three", "C-d")
    window.sees("three", "Resume this session with:", 'hermes -c "my project"', "(4 user, 0 tool calls)")
    session = db.tip("my project")
    assert session is not None
    until(lambda: db.leases.find_holder(session) is None)
    # The session has no messages after the kill, so it is unchanged.
    assert stored(db, "my project")[0] == "line one\nline two"
    assert len(stored(db, "my project")) == 4
    assert stored(db, "my project (2)")[-1] == "mine"


def test_a_folded_output_is_opened_by_a_key_also_one_that_was_pressed_too_early(
    window: Window, tmp_path: Path
) -> None:
    window.start("one", "--incognito")
    window.sees("one", "❯", "echo")
    window.paste(
        "one", "use shout " + "\n".join(f"line {number}" for number in range(15)), tmp_path / "pasted"
    )
    window.keys("one", "Enter")
    window.sees("one", "│ LINE 0", "│ … 10 more lines (Ctrl-O opens)", "│ LINE 14")
    assert "│ LINE 7" not in window.screen("one")
    window.keys("one", "slow 5", "Enter")
    window.sees("one", "0 1")
    window.keys("one", "C-o", "typed ahead")
    window.sees("one", "── /output 1", "│ LINE 7", "❯ typed ahead")


def test_commands_do_not_act_on_a_session_that_was_trashed_elsewhere(window: Window, db: SessionDB) -> None:
    window.start("one")
    window.sees("one", "❯", "new conversation")
    window.keys("one", "hello", "Enter")
    window.sees("one", "you said: hello", "echo · 2 in")
    (old,) = (row["id"] for row in db.list_sessions_rich())
    db.trash_session(old)
    window.keys("one", "/branch x", "Enter")
    window.sees("one", f"Session {old} was deleted or moved to the trash. Your next message begins")
    window.keys("one", "/title Foo", "Enter", "/status", "Enter")
    window.sees("one", "Session title queued", "(not stored yet)", "Used:      nothing yet")
    window.keys("one", "hello again", "Enter")
    screen = window.sees("one", "you said: hello again", "Session title set: Foo")
    assert "does not exist" not in screen
    assert screen.count("was deleted or moved to the trash") == 1
    assert [(row["title"], row["preview"]) for row in db.list_sessions_rich()] == [("Foo", "hello again")]
    assert [row["title"] for row in db.list_trash()] == [None]


def test_typed_text_is_never_lost_in_the_prompt(window: Window, db: SessionDB, tmp_path: Path) -> None:
    window.start("one")
    window.sees("one", "❯")
    window.keys("one", "/title input", "Enter", "see ")
    window.sees("one", "❯ see")
    long = "\n".join(f"line {number}" for number in range(4000))
    window.paste("one", long, tmp_path / "long")
    window.sees("one", "❯ see [pasted #1: 4,000 lines, 38,889 characters]")
    window.keys("one", "Enter")
    window.sees("one", "line 3999", "echo · 2 in")
    window.keys("one", "half a thought", "C-r", "pas")
    window.sees("one", "I-search backward")
    window.keys("one", "C-r", "C-c")
    window.sees("one", "❯ half a thought")
    window.keys("one", "C-c")
    until(lambda: "half a thought" not in window.screen("one"))
    window.keys("one", "Up")
    window.sees("one", "❯ half a thought")
    window.keys("one", "Up")
    window.sees("one", "❯ see [pasted #1: 4,000 lines, 38,889 characters]")
    window.keys("one", "Down")
    window.sees("one", "❯ half a thought")
    window.keys("one", " ends", "Enter")
    window.sees("one", "you said: half a thought ends")
    window.keys("one", "Up")
    window.sees("one", "❯ half a thought ends")
    window.keys("one", "Up", "Up")
    window.sees("one", "❯ see [pasted #1")
    window.keys("one", "Enter")
    until(lambda: stored(db, "input") == [f"see {long}", "half a thought ends", f"see {long}"])


def test_a_command_of_the_shell_has_the_terminal_and_is_stopped_by_ctrl_c(window: Window) -> None:
    window.start("one")
    window.sees("one", "❯")
    window.keys("one", "! printf '%s are you? ' who; read name; echo hello $name; sleep 1000", "Enter")
    window.sees("one", "who are you?")
    window.keys("one", "Ann", "Enter")
    window.sees("one", "who are you? Ann", "hello Ann")
    window.keys("one", "C-c")
    window.sees("one", "ended by signal 2")
    window.keys("one", "still here", "Enter")
    window.sees("one", "you said: still here")


@pytest.mark.parametrize("begin", ["!", "!! trap '' TERM;"])
def test_a_command_of_the_shell_ends_with_the_chat(window: Window, tmp_path: Path, begin: str) -> None:
    window.start("one")
    window.sees("one", "❯")
    file = tmp_path / "pids"
    command = f"{begin} sleep 1000 & echo $$ $! > {file}; echo begun; wait; sleep 1000"
    window.keys("one", command, "Enter")
    window.sees("one", "\nbegun")
    pids = [int(pid) for pid in file.read_text().split()]
    assert not any(is_gone(os.uname().nodename, pid, None) for pid in pids)
    os.kill(window.process("one"), signal.SIGTERM)
    window.sees("one", "Ended the running command, because the chat ends.", "Goodbye.")
    until(lambda: all(is_gone(os.uname().nodename, pid, None) for pid in pids))


def test_the_status_of_a_resumed_conversation_shows_its_usage(window: Window, db: SessionDB) -> None:
    db.create_session("old", "cli")
    db.append_message("old", "user", "before")
    db.record_usage("old", model="echo", input_tokens=1234, output_tokens=56)
    window.start("one", "-r", "old")
    window.sees("one", "❯")
    window.keys("one", "/status", "Enter")
    assert "tokens unknown" not in window.sees("one", "Used:", "1.2K in, 56 out")


def test_no_notice_of_a_busy_store_appears_while_a_question_is_open(window: Window, db: SessionDB) -> None:
    db.create_session("held", "cli")
    db.append_message("held", "user", "before")
    window.start("one", "-r", "held")
    window.sees("one", "❯")
    window.start("two", "-r", "held")
    window.sees("two", "1. follow", "4. leave it")
    shown_until = time.monotonic() + 2 * BUSY_S
    until(lambda: time.monotonic() > shown_until)
    assert "The store is busy" not in window.screen("two")


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_answer_and_keeps_it(
    window: Window, db: SessionDB, ending: signal.Signals
) -> None:
    window.start("one")
    window.sees("one", "❯", "new conversation")
    window.keys("one", "/title kept", "Enter", "slow 300", "Enter")
    window.sees("one", "0 1 2 3", "Ctrl-C stops")
    os.kill(window.process("one"), ending)
    window.sees("one", "■ stopped", "Resume this session with:")
    row = db.get_context(db.tip("kept") or "")[-1]
    assert (row["role"], row["finish_reason"]) == ("assistant", "interrupted")
    assert str(row["content"]).startswith("0 1 2 3")


def test_a_signal_during_the_answer_to_the_first_question_ends_the_chat(window: Window) -> None:
    window.start("one", "slow 300")
    window.sees("one", "0 1 2 3", "Ctrl-C stops")
    os.kill(window.process("one"), signal.SIGTERM)
    assert "❯" not in window.sees("one", "■ stopped", "Resume this session with:").partition("■ stopped")[2]
