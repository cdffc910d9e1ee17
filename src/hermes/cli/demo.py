"""`hermes demo`: the product in a minute, on sample conversations in a home that is thrown away afterwards."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from hermes.cli.command import DONE, Refused, Words
from hermes.cli.output import say, styled

RESUMED = "refactoring auth"
QUESTION = "what did we decide about the retry budget?"
STEPS = (
    ("Every conversation, from every platform, one row each:", ("sessions", "list", "--limit", "12")),
    ("Found again by what was said, in any script:", ("search", QUESTION, "--limit", "3")),
    ("", ("search", "桂林", "--limit", "1")),
    ("One that was compressed twice, and what came out of it:", ("sessions", "tree", "schema migration")),
    ("Read again:", ("sessions", "show", "slow test suite", "--tools")),
    ("What it took:", ("insights",)),
)
"""What is shown, and the words that show it."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=demo)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the home here, and leave it there to look around in"
    )


def demo(arguments: argparse.Namespace) -> int:
    from hermes.cli.main import main
    from hermes.demo.home import fill
    from hermes.sessiondb import SessionDB

    with _home(arguments.keep) as home:
        os.environ["HERMES_HOME"] = str(home)
        os.environ["PAGER"] = "cat"  # it is a show: nothing waits for a key
        with SessionDB(durability="normal") as db:
            count = fill(db, Path.cwd())
        say([f"A home of its own with {count} sample sessions. Nothing of yours is touched.", ""])
        for heading, words in STEPS:
            said = " ".join(f"'{word}'" if " " in word else word for word in words)
            say([*([styled(heading, "bold")] if heading else []), styled(f"$ hermes {said}", "cyan"), ""])
            main(words)
            say([""])
        _show_recap()
        if arguments.keep:
            say([f"Look around: HERMES_HOME={home} hermes sessions browse"])
        else:
            say(["The samples are gone again. Your own first conversation: hermes"])
    return DONE


def _show_recap() -> None:
    """What a person sees who goes on with a conversation. The chat draws it, if it is installed."""
    if find_spec("rich") is None:
        return
    from hermes.chat.recap import recap
    from hermes.chat.rendering import Screen
    from hermes.sessiondb import SessionDB

    with SessionDB() as db:
        session_id = db.named(RESUMED).id
        rows = db.get_context(session_id) if session_id is not None else []
    say([styled("Resumed where you were:", "bold"), styled(f"$ hermes -c {RESUMED}", "cyan"), ""])
    Screen().recap(recap(rows))
    say([""])


@contextmanager
def _home(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and any(keep.iterdir()):
            raise Refused(f"{keep} is not empty")
        yield keep.absolute()
        return
    folder = Path(tempfile.mkdtemp(prefix="hermes-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
