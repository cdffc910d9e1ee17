"""`hermes demo`: the product in a minute, on sample conversations in a home that is thrown away afterwards."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.cli.command import DONE, Refused, Words
from hermes.cli.io.output import say, styled
from hermes.cli.opened_store import refuse_own
from hermes.home import get_default_db_path
from hermes.text import make_printable

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
QUESTION = "what did we decide about the retry budget?"
STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Every conversation, from every platform, one row each:", ("sessions", "list", "--limit", "12")),
    ("Found again by what was said, in any script:", ("search", QUESTION, "--limit", "3")),
    ("", ("search", "桂林", "--limit", "1")),
    ("One that was compressed twice, and what came out of it:", ("sessions", "tree", "schema migration")),
    ("Read again:", ("sessions", "show", "slow test suite", "--tools")),
    ("Gone on in, where it was left:", ("-c", "refactoring auth")),
    ("What it took:", ("insights",)),
)
"""What is shown, and the words that show it."""
STEPS_WITHOUT_CHAT = tuple(step for step in STEPS if step[1][0] != "-c")


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=demo)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the home here, and leave it there to look around in"
    )


def demo(arguments: argparse.Namespace) -> int:
    from hermes.cli.chat import is_installed
    from hermes.cli.main import main
    from hermes.db.session_db import SessionDB
    from hermes.demo.sample_home import fill

    with _home(arguments.keep) as home:
        os.environ["HERMES_HOME"] = str(home)
        os.environ["PAGER"] = "cat"  # it is a show: nothing waits for a key
        with SessionDB(durability="normal") as db:
            count = fill(db, Path.cwd())
        say([f"A home of its own with {count} sample sessions. Nothing of yours is touched.", ""])
        for heading, words in STEPS if is_installed() else STEPS_WITHOUT_CHAT:
            said = " ".join(f"'{word}'" if " " in word else word for word in words)
            say([*([styled(heading, "bold")] if heading else []), styled(f"$ hermes {said}", "cyan"), ""])
            if words[0] == "-c":
                _come_back(words[1])
            else:
                main(words)
            say([""])
        if arguments.keep:
            say([make_printable(f"Look around: HERMES_HOME={home} hermes sessions browse")])
        else:
            say(["The samples are gone again. Your own first conversation: hermes"])
    return DONE


def _come_back(name: str) -> None:
    """What the chat shows to somebody who comes back; here nobody can answer, so it ends there."""
    import asyncio

    from hermes.agent.factory import make_standard_components
    from hermes.chat.session import Talk
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen
    from hermes.db.session_db import SessionDB

    async def look(db: SessionDB) -> None:
        session = db.named(name).id
        assert session is not None
        talk = Talk(db, make_standard_components())
        await Chat(talk, Screen()).enter(session, first=True)
        await talk.leave()

    with SessionDB() as db:
        asyncio.run(look(db))


@contextmanager
def _home(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        refuse_own(get_default_db_path(), keep)
        if keep.exists() and any(keep.iterdir()):
            raise Refused(f"{keep} is not empty")
        yield keep.absolute()
        return
    with _ended_in_order():
        folder = Path(tempfile.mkdtemp(prefix="hermes-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Whoever closes the window, or ends the program, leaves nothing behind either. What is ignored stays ignored."""
    handled = [one for one in ENDINGS if signal.getsignal(one) == signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for one in handled:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in handled:
            signal.signal(one, signal.SIG_DFL)
