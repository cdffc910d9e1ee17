"""Draws the pictures of docs/images/: terminal screens of the real program with the sample conversations.

    python -m tools.pictures [NAME ...]

The program needs tmux. A picture is defined by the arguments of `hermes`, the keys to type, and the text to
wait for after each input.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PATIENCE_S, SETTLE_S = 60, 1.0
PROJECT = "uploads"
WEB_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
FORMAT = WEB_FONTS.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", "ui-monospace, monospace")
"""The SVG template of rich without fonts from the web."""


class Typed(NamedTuple):
    keys: tuple[str, ...]
    """Keys for `tmux send-keys`: text or the name of a key."""
    awaited: str
    """A text that is on the screen only after the keys have taken effect."""


class Picture(NamedTuple):
    words: str
    """The arguments of `hermes`."""
    width: int
    height: int
    awaited: str
    typed: tuple[Typed, ...] = ()


PICTURES = {
    "list": Picture("sessions list --limit 13", 120, 20, "hidden"),
    "insights": Picture("insights", 64, 130, "Most tool calls"),
    "browse": Picture("sessions browse", 130, 36, "raid night", (Typed(("Down",) * 3, "Help me refactor"),)),
    "chat": Picture(
        "--model offline --continue retry budget for uploads",
        96,
        40,
        "❯",
        (
            Typed(("what about the chain of my bike?", "Enter"), "offline ·"),
            Typed(("run mkdir retries", "Enter"), "no, and tell the agent why"),
        ),
    ),
}
"""The pictures by name. The chat comes last, because it changes the sample conversations."""


class Screen:
    """A tmux terminal in which a program runs."""

    def __init__(self, folder: Path, picture: Picture) -> None:
        self._socket = folder / "tmux"
        environment = {
            "HERMES_HOME": str(folder / "home"),
            "HERMES_MODEL": "offline",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PAGER": "cat",
        }
        settings = shlex.join(f"{name}={value}" for name, value in environment.items())
        program = f"env {settings} {shlex.quote(sys.executable)} -m hermes {picture.words}; sleep 600"
        size = ("-x", str(picture.width), "-y", str(picture.height))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(folder / PROJECT), program)
        self._wait(picture.awaited)

    def type(self, typed: Typed) -> None:
        self._tmux("send-keys", *typed.keys)
        self._wait(typed.awaited)

    def read(self) -> str:
        """Return the screen with its colours."""
        return self._tmux("capture-pane", "-p", "-e", "-N").rstrip()

    def close(self) -> None:
        self._tmux("kill-server")

    def _wait(self, text: str) -> None:
        wait_until(lambda: text in self._tmux("capture-pane", "-p"), text)
        time.sleep(SETTLE_S)  # the program may still be drawing

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", str(self._socket), *words], capture_output=True, check=True)
        return done.stdout.decode()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"tools.pictures: {what!r} does not appear")
        time.sleep(0.1)


def draw(picture: Picture, folder: Path) -> str:
    """Return a picture as SVG."""
    screen = Screen(folder, picture)
    try:
        for typed in picture.typed:
            screen.type(typed)
        content = screen.read()
    finally:
        screen.close()
    console = Console(record=True, width=picture.width, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(content))
    return console.export_svg(title=f"hermes {picture.words}", code_format=FORMAT, unique_id="terminal")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        demo = [sys.executable, "-m", "hermes", "demo", "--keep", str(folder / "home")]
        (folder / PROJECT).mkdir()
        subprocess.run(demo, check=True, cwd=folder / PROJECT, stdout=subprocess.DEVNULL)
        for chosen in sys.argv[1:] or PICTURES:
            target = IMAGES / f"{chosen}.svg"
            target.write_text(draw(PICTURES[chosen], folder), encoding="utf-8")
            print(target)


if __name__ == "__main__":
    main()
