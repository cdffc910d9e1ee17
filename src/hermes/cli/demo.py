"""`hermes demo`: a short tour of the product with sample conversations in a temporary home."""

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
    ("All conversations from all platforms, one row each:", ("sessions", "list", "--limit", "12")),
    ("Search by content, in any script:", ("search", QUESTION, "--limit", "3")),
    ("", ("search", "桂林", "--limit", "1")),
    ("A conversation that was compressed twice, and its branches:", ("sessions", "tree", "schema migration")),
    ("Read a conversation:", ("sessions", "show", "slow test suite", "--tools")),
    ("Continue a conversation:", ("-c", "refactoring auth")),
    ("Usage and costs:", ("insights",)),
)
"""Headings and the commands shown below them."""
STEPS_WITHOUT_CHAT = tuple(step for step in STEPS if step[1][0] != "-c")


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=run_demo)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="create the sample home in this directory and keep it"
    )


def run_demo(arguments: argparse.Namespace) -> int:
    from hermes.chat import is_installed
    from hermes.db.session_db import SessionDB
    from hermes.demo.sample_home import fill_home

    with _make_home(arguments.keep) as home:
        os.environ["HERMES_HOME"] = str(home)
        os.environ["PAGER"] = "cat"  # the demo does not wait for keys
        with SessionDB(durability="normal") as db:
            count = fill_home(db, Path.cwd())
        print_lines([f"A temporary home with {count} sample sessions. Your own data is not changed.", ""])
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
            print_lines([make_printable(f"To look around: HERMES_HOME={home} hermes sessions browse")])
        else:
            print_lines(["The samples are deleted again. To start your first conversation: hermes"])
    return DONE


def _show_resume(name: str) -> None:
    """Print what the chat shows when a conversation is continued, then stop, because the demo reads no input."""
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
    """Exit on SIGTERM and SIGHUP by an exception, so that the temporary home is deleted. Ignored signals stay
    ignored."""
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
