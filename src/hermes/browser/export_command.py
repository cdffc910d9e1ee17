"""Writing one conversation to a file: `hermes sessions export` does it, and what it says is passed on.

The ending of the file's name says the format. The command replaces an earlier export, which it keeps as `FILE~`, and
no other file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hermes.browser.rows import Conversation
from hermes.errors import HermesError
from hermes.text import make_printable

FORMATS = {".jsonl": "jsonl", ".json": "jsonl", ".md": "md", ".markdown": "md", ".html": "html"}
COMMAND = [sys.executable, "-P", "-m", "hermes.cli.main", "sessions", "export"]


class ExportFailed(HermesError):
    pass


def suggested_name(one: Conversation) -> str:
    """A file in the current folder, named after the conversation."""
    letters = "".join(sign if sign.isalnum() else " " for sign in one.title or "")
    return f"{'-'.join(letters.split())[:60] or one.id}.md"


def export(store: Path, one: Conversation, name: str) -> Path:
    """Write the conversation to a file, or into a folder; where it is. Says what went wrong in one line."""
    target = Path(name).expanduser().absolute()
    form = "md" if target.is_dir() else FORMATS.get(target.suffix.lower())
    if form is None:
        raise ExportFailed("end the name in .jsonl, .md or .html to say the format")
    words = [*COMMAND, str(target), "--session-id", one.id, "--format", form, "--store", str(store)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise ExportFailed(make_printable(lines[0].removeprefix("hermes: ")))
    return target
