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

from hermes.cli.command import Words
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.output import apply_style, print_lines
from hermes.export.output_file import refuse_store_files
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
    parser.set_defaults(run=run_demo)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the home here, and leave it there to look around in"
    )


def run_demo(arguments: argparse.Namespace) -> int:
    from hermes.chat import is_installed
    from hermes.db.session_db import SessionDB
    from hermes.demo.sample_home import fill_home

    with _make_home(arguments.keep) as home:
        os.environ["HERMES_HOME"] = str(home)
        os.environ["PAGER"] = "cat"  # it is a show: nothing waits for a key
        with SessionDB(durability="normal") as db:
            count = fill_home(db, Path.cwd())
        print_lines([f"A home of its own with {count} sample sessions. Nothing of yours is touched.", ""])
        for heading, words in STEPS if is_installed() else STEPS_WITHOUT_CHAT:
            command_line = " ".join(f"'{word}'" if " " in word else word for word in words)
            print_lines(
                [
                    *([apply_style(heading, "bold")] if heading else []),
                    apply_style(f"$ hermes {command_line}", "cyan"),
                    "",
                ]
            )
            if words[0] == "-c":
                _show_resume(words[1])
            else:
                arguments.main(words)
            print_lines([""])
        if arguments.keep:
            print_lines([make_printable(f"Look around: HERMES_HOME={home} hermes sessions browse")])
        else:
            print_lines(["The samples are gone again. Your own first conversation: hermes"])
    return DONE


def _show_resume(name: str) -> None:
    """What the chat shows to somebody who comes back; here nobody can answer, so it ends there."""
    import asyncio

    from hermes.agent.factory import make_standard_components
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen
    from hermes.conversation.local_conversation import open_local_conversation
    from hermes.db.session_db import SessionDB

    async def look(db: SessionDB) -> None:
        session = db.named(name).id
        assert session is not None
        conversation = open_local_conversation(db, make_standard_components())
        await Chat(conversation, Screen()).enter(session)
        await conversation.close()

    with SessionDB() as db:
        asyncio.run(look(db))


@contextmanager
def _make_home(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        refuse_store_files(get_default_db_path(), keep)
        if keep.exists() and any(keep.iterdir()):
            raise Refused(f"{keep} is not empty")
        yield keep.absolute()
        return
    with _exit_on_signals():
        folder = Path(tempfile.mkdtemp(prefix="hermes-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Whoever closes the window, or ends the program, leaves nothing behind either. What is ignored stays ignored."""
    handled = [number for number in ENDINGS if signal.getsignal(number) == signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
