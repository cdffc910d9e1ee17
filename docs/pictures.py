"""Draw the pictures of this folder: the real commands on the sample conversations, as a terminal shows them.

.venv/bin/python docs/pictures.py
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
HERMES = [sys.executable, "-m", "hermes.cli.main"]
PICTURES = {
    "list": (("sessions", "list", "--limit", "13"), 120),
    "insights": (("insights",), 64),
}


def in_a_terminal(words: tuple[str, ...], width: int, home: str) -> str:
    """What a command prints to a terminal of this width."""
    mine, theirs = pty.openpty()
    environment = {
        **os.environ,
        "HERMES_HOME": home,
        "COLUMNS": str(width),
        "TERM": "xterm-256color",
        "PAGER": "cat",
    }
    with subprocess.Popen([*HERMES, *words], stdout=theirs, env=environment):
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(mine, 65536):
                shown += piece
        except OSError:  # the other end is closed
            pass
    os.close(mine)
    return shown.decode().replace("\r\n", "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = f"{folder}/home"
        subprocess.run([*HERMES, "demo", "--keep", home], check=True, stdout=subprocess.DEVNULL)
        for name, (words, width) in PICTURES.items():
            console = Console(record=True, width=width, file=io.StringIO())
            console.print(Text.from_ansi(in_a_terminal(words, width, home).rstrip()))
            target = HERE / "images" / f"{name}.svg"
            console.save_svg(str(target), title=f"hermes {' '.join(words)}")
            print(target)


if __name__ == "__main__":
    main()
