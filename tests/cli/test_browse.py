"""`hermes sessions browse` in a real terminal, and with numbered choices where there is no terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, Hermes

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")


@pytest.fixture
def three(db: SessionDB) -> None:
    for number, text in enumerate(("the newest", "a zebra", "the oldest")):
        when = time.time() - number * 3600
        db.create_session(f"s{number}", "telegram" if number == 1 else "cli", started_at=when)
        db.append_message(f"s{number}", "user", text, timestamp=when)
    db.create_session("job", "cron")
    db.set_session_title("s2", "[bold]Old\u202e one[/bold]")


# Without a terminal


@pytest.mark.usefixtures("three")
def test_without_a_terminal_a_conversation_is_chosen_by_number(hermes: Hermes) -> None:
    result = hermes("sessions", "browse", stdin="2\n")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("1. the newest")
    assert lines[0].endswith("cli        s0")
    assert lines[1].startswith("2. a zebra")
    assert lines[2].startswith("3. [bold]Old one[/bold]")
    assert lines[3] == "Number (1-3, nothing to cancel):"
    assert lines[4] == "Resuming session: s1"
    assert "needs a terminal" in result.stderr


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("stdin", ["", "\n", "nonsense\n", "0\n9\n²\n\n"])
def test_no_choice_is_cancelled(hermes: Hermes, stdin: str) -> None:
    result = hermes("sessions", "browse", stdin=stdin)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "hermes: Cancelled."
    assert result.stderr.count("hermes: not a number from 1 to 3") == len(stdin.split())


@pytest.mark.usefixtures("three")
def test_the_flags_choose_what_is_numbered(hermes: Hermes, db: SessionDB, tmp_path: Path) -> None:
    def numbered(*flags: str) -> list[str]:
        lines = hermes("sessions", "browse", *flags).stdout.splitlines()
        return [line.split()[-1] for line in lines if line[:1].isdigit()]

    assert numbered("--source", "telegram") == ["s1"]
    assert numbered("--source", "telegram", "--source", "cron") == ["job", "s1"]
    assert numbered("--all") == ["job", "s0", "s1", "s2"]
    assert numbered("--limit", "2") == ["s0", "s1"]
    db.set_session_workspace("s2", tmp_path)
    assert numbered("--workspace", str(tmp_path)) == ["s2"]


@pytest.mark.usefixtures("three")
def test_the_numbered_list_groups_the_runs_of_each_job(hermes: Hermes, db: SessionDB) -> None:
    for job in ("beta", "alpha", "beta"):
        number = db.list_conversations(include_hidden=True).total
        db.create_session(f"cron_{job}_20260101_00000{number}", "cron", started_at=float(number))
    result = hermes("sessions", "browse", "--all", stdin="6\n")
    lines = [line.split()[-1] if line[:1].isdigit() else line for line in result.stdout.splitlines()]
    assert lines == [
        *("job", "s0", "s1", "s2"),
        *("Job beta: 2 conversations", "cron_beta_20260101_000006", "cron_beta_20260101_000004"),
        *("Job alpha: 1 conversation", "cron_alpha_20260101_000005"),
        "Number (1-7, nothing to cancel):",
        "Resuming session: cron_beta_20260101_000004",
    ]


def test_an_empty_store_has_nothing_to_choose(hermes: Hermes, db: SessionDB) -> None:
    result = hermes("sessions", "browse", stdin="1\n")
    start = "hermes: No sessions yet. Start one with: hermes chat\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", start)


@pytest.mark.usefixtures("three")
def test_an_empty_list_names_the_filters_that_hide_conversations(hermes: Hermes, db: SessionDB) -> None:
    assert hermes("sessions", "browse", "--source", "nobody").stderr == "hermes: No sessions found.\n"
    for name in ("s0", "s1", "s2"):
        db.set_session_archived(name, True)
    hidden = "hermes: No sessions found; 3 archived, 1 cron hidden, --all shows them.\n"
    assert hermes("sessions", "browse").stderr == hidden


def test_textual_is_not_loaded_where_it_is_not_needed(three: None) -> None:
    program = (
        "import sys; from hermes.cli.main import main; code = main(['sessions', 'browse']); "
        "print([name for name in ('textual', 'rich', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# In a terminal


class Terminal:
    """A terminal with the browser, on a separate tmux server."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-u", "-S", str(socket), "-f", "/dev/null"]

    def start(self, width: int, height: int, *words: str, **environment: str) -> None:
        settings = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", *settings, *COMMAND, "sessions", "browse", *words]
        script = " ".join(f"'{word}'" for word in command) + "; echo EXIT $?; sleep 60"
        self._run("new-session", "-d", "-s", "b", "-x", str(width), "-y", str(height), script)

    def keys(self, *keys: str) -> None:
        self._run("send-keys", "-t", "b", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-t", "b", "-x", str(width), "-y", str(height))

    @property
    def text(self) -> str:
        return self._run("capture-pane", "-t", "b", "-p")

    def shows(self, *wanted: str, but: str = "\0") -> str:
        """Wait until the screen shows all of these texts and does not show `but`. Return the screen."""
        deadline = time.monotonic() + 60
        while not all(one in (text := self.text) for one in wanted) or but in text:
            assert time.monotonic() < deadline, f"{wanted} not in:\n{text}"
            time.sleep(0.05)
        return text

    def find(self, word: str, count: int) -> list[tuple[int, int]]:
        """Return `count` positions of `word` as (row, column), in cells of the terminal."""
        self._run("copy-mode", "-t", "b")
        self._run("send-keys", "-t", "b", "-X", "search-backward", word)
        places = []
        for _ in range(count):
            place = self._run("display-message", "-t", "b", "-p", "#{copy_cursor_y} #{copy_cursor_x}")
            places.append((int(place.split()[0]), int(place.split()[1])))
            self._run("send-keys", "-t", "b", "-X", "search-again")
        self._run("send-keys", "-t", "b", "-X", "cancel")
        return places

    def stop(self) -> None:
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], capture_output=True, encoding="utf-8", timeout=30, env=os.environ
        )
        return done.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    one = Terminal(tmp_path / "tmux")
    yield one
    one.stop()


@needs_tmux
@pytest.mark.usefixtures("three")
def test_a_person_finds_changes_and_chooses_a_conversation(terminal: Terminal, db: SessionDB) -> None:
    terminal.start(60, 15, TERM="xterm-256color", COLUMNS="80", LINES="24")
    first = terminal.shows("the newest", "a zebra", "1 of 3", "1 cron hidden", "⏎ resume")
    assert len(first.splitlines()) == 15
    terminal.keys("Down", "Down", "C-d")
    terminal.shows("Deleted “[bold]Old one[/bold]” · ^Z to undo", but="▌ [bold]")
    assert [row["id"] for row in db.list_trash()] == ["s2"]
    terminal.keys("C-z")
    terminal.shows("Undone", "▌ [bold]Old one")
    terminal.resize(120, 30)
    terminal.shows("the oldest", "╭─ [bold]Old one[/bold]")
    terminal.keys("zeb")
    terminal.shows("❯ zeb", "1 of 1 found", "telegram · 1 message ")
    terminal.keys("C-r")
    terminal.shows("New title:")
    terminal.keys("斑马", "Enter")
    terminal.shows("Renamed to “斑马”")
    assert db.get_session_title("s1") == "斑马"
    terminal.keys("Enter")
    terminal.shows("↻ Resumed session s1", "● You: a zebra", "❯")
    terminal.keys("C-d")
    terminal.shows("Resume this session with:", "EXIT")


@needs_tmux
@pytest.mark.usefixtures("three")
def test_keys_that_arrive_at_once_mean_the_same_as_slow_ones(terminal: Terminal, db: SessionDB) -> None:
    terminal.start(100, 20, TERM="xterm-256color")
    terminal.shows("1 of 3")
    keys = ["oldest", "C-p", "Escape", "zebra", "C-r", "C-u", "Stripes", "Enter", "Escape", "End", "C-x"]
    keys += ["C-g", "mine, old", "Enter", "Escape", "C-f", "Tab", "Down", "Space", "Enter", "End", "Up"]
    terminal.keys(*keys, "C-d")
    terminal.shows("Deleted “the newest”", "cron", "Stripes  #mine #old")
    assert [row["id"] for row in db.list_trash()] == ["s0"]
    assert db.get_session_title("s1") == "Stripes"
    assert [row["id"] for row in db.list_conversations(pinned_only=True).rows] == ["s2"]


@needs_tmux
def test_emoji_keep_the_columns_of_the_terminal(terminal: Terminal, db: SessionDB) -> None:
    emoji = ("👩‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "1️⃣", "🇩🇪", "👍🏽", "👩🏽‍💻", "🫨", "✌🏽", "ab")
    for number, sign in enumerate(emoji):
        db.create_session(f"s{number}", "cli")
        db.set_session_title(f"s{number}", f"{sign}{sign} end{number}")
    terminal.start(60, 18, TERM="xterm-256color")
    terminal.shows("1 of 10", "end9")
    places = terminal.find("just now", len(emoji))
    assert len({row for row, _ in places}) == len(emoji)
    assert len({column for _, column in places}) == 1


@needs_tmux
@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(("key", "said", "code"), [("Escape", "Cancelled.", 1), ("C-c", "interrupted", 130)])
def test_leaving_restores_the_terminal(terminal: Terminal, key: str, said: str, code: int) -> None:
    terminal.start(80, 24, TERM="xterm-256color")
    terminal.shows("the newest")
    terminal.keys(key)
    text = terminal.shows(said, f"EXIT {code}")
    assert "Traceback" not in text
    assert "⏎ resume" not in text


@needs_tmux
@pytest.mark.usefixtures("three")
def test_a_terminal_that_cannot_draw_gets_numbers(terminal: Terminal) -> None:
    terminal.start(80, 24, TERM="dumb")
    terminal.shows("1. the newest", "Number (1-3")
    while "EXIT" not in terminal.text:  # keys in the first 400 ms are discarded
        terminal.keys("Enter")
    terminal.shows("Cancelled.", "EXIT 1")


@needs_tmux
@pytest.mark.usefixtures("three")
def test_without_the_extra_numbers_are_used_and_a_hint_is_shown(terminal: Terminal, tmp_path: Path) -> None:
    """Textual is hidden from the process, as if it were not installed."""
    blocker = "import sys\nimport importlib.util as u\nfind = u.find_spec\n"
    blocker += "u.find_spec = lambda name, package=None: None if name == 'textual' else find(name, package)\n"
    (tmp_path / "sitecustomize.py").write_text(blocker)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    terminal.start(110, 24, TERM="xterm-256color", PYTHONPATH=path)
    terminal.shows("the full-screen browser is not installed", "1. the newest", "Number (1-3")
