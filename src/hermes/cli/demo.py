"""`hermes demo`: a short tour of the product with sample conversations in a temporary home."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hermes.cli.command import Words
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.output import apply_style, has_screen, print_lines
from hermes.export.output_file import refuse_store_files
from hermes.home import get_default_db_path
from hermes.text import make_printable

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
QUESTION = "what did we decide about the retry budget?"
HINT = "Enter: next   q: leave the tour "
STILL_SIZE = (100, 26)
"""The size of the browser's screen that a demo without a terminal prints."""


class Step(NamedTuple):
    heading: str
    words: tuple[str, ...]
    """The words of the command whose output is shown."""
    more: tuple[str, ...] = ()
    """A second command on the same screen."""


STEPS = (
    Step("The chat. Ask about earlier work; the agent searches your conversations:", (QUESTION,)),
    Step("All conversations from all platforms, one row each:", ("sessions", "list", "--limit", "12")),
    Step(
        "Search by content, in any script:",
        ("search", QUESTION, "--limit", "3"),
        ("search", "桂林", "--limit", "1"),
    ),
    Step(
        "A conversation that was compressed twice, and its branches:",
        ("sessions", "tree", "schema migration"),
    ),
    Step("Read a conversation:", ("sessions", "show", "slow test suite", "--tools")),
    Step("Continue a conversation by its title:", ("-c", "refactoring auth")),
    Step("Browse, search, read and manage conversations on the full screen:", ("sessions", "browse")),
    Step("Usage and costs:", ("insights",)),
)
ASK, RESUME, BROWSE = (QUESTION,), ("-c", "refactoring auth"), ("sessions", "browse")
"""The commands that read the keyboard. The demo does not run these commands. It shows their screens
itself."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=run_demo)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="create the sample home in this directory and keep it"
    )


def run_demo(arguments: argparse.Namespace) -> int:
    """`hermes demo`: show the steps of the tour one after the other. On a terminal, wait for a key after each
    step."""
    from hermes.db.session_db import SessionDB
    from hermes.demo.sample_home import fill_home

    # no pager: the tour itself waits for keys
    with _make_home(arguments.keep) as home, _set_environment(HERMES_HOME=str(home), PAGER="cat"):
        with SessionDB(durability="normal") as db:
            count = fill_home(db, Path.cwd())
        print_lines([f"A temporary home with {count} sample sessions. Your own data is not changed.", ""])
        steps = [step for step in STEPS if _is_installed(step)]
        for number, step in enumerate(steps, 1):
            print_lines([apply_style(f"{number}/{len(steps)}  {step.heading}", "bold")])
            for words in filter(None, (step.words, step.more)):
                _show(words, arguments)
            if number < len(steps) and not _go_on():
                break
        if arguments.keep:
            print_lines([make_printable(f"To look around: HERMES_HOME={home} hermes sessions browse")])
        else:
            print_lines(["The samples are deleted again. To start your first conversation: hermes"])
    return DONE


def _is_installed(step: Step) -> bool:
    """Return whether the optional packages that a step of the tour needs are installed."""
    if step.words == BROWSE:
        return all(map(find_spec, ("textual", "rich")))
    from hermes.chat import is_installed

    return is_installed() if step.words in (ASK, RESUME) else True


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _go_on() -> bool:
    """On a terminal, wait for a key before the next step of the tour. Return False if the user leaves the tour."""
    if not _has_terminal():
        return True
    from hermes.cli.io.keyboard import wait_for_next

    return wait_for_next(apply_style(HINT, "dim"))


def _show(words: tuple[str, ...], arguments: argparse.Namespace) -> None:
    command_line = " ".join(f"'{word}'" if " " in word else word for word in words)
    print_lines([apply_style(f"$ hermes {command_line}", "cyan"), ""])
    if words in (ASK, RESUME):
        _show_chat(words)
    elif words == BROWSE:
        _show_browser()
    else:
        arguments.main(words)
    print_lines([""])


def _show_chat(words: tuple[str, ...]) -> None:
    """Print how the screen of the terminal looks after a question, or after a conversation was resumed. No
    input is read."""
    import asyncio

    from hermes.agent.components import ModelChoice
    from hermes.agent.factory import make_standard_components
    from hermes.agent.models.choice import OFFLINE
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen
    from hermes.conversation.local_conversation import open_local_conversation
    from hermes.db.session_db import SessionDB

    async def show(db: SessionDB) -> None:
        conversation = open_local_conversation(db, make_standard_components(), wish=ModelChoice(OFFLINE))
        chat = Chat(conversation, Screen())
        if words == RESUME:
            session = db.named(words[1]).id
            assert session is not None
            await chat.enter(session)
        else:
            chat.greet()
            chat.screen.print_input(words[0])
            await chat.answer(words[0])
        await conversation.close()

    with SessionDB() as db:
        asyncio.run(show(db))


def _show_browser() -> None:
    """Open the full-screen browser. If there is no terminal, print the first screen of the browser."""
    from hermes.browser import browse, draw
    from hermes.db.session_db import SessionDB

    with SessionDB() as db:
        if not has_screen():
            print_lines(make_printable(line) for line in draw(db, STILL_SIZE))
        elif _pause_before_browser():
            chosen = browse(db)
            row = db.get_session(chosen) if chosen else None
            if row is not None:
                name = make_printable(row["title"] or row["id"])
                print_lines([f"Outside of the tour, the chat now continues with: {name}"])


def _pause_before_browser() -> bool:
    from hermes.cli.io.keyboard import wait_for_next

    print_lines(["Type to search, ↑ ↓ to move, Esc to leave the browser.", ""])
    return wait_for_next(apply_style("Enter: open the browser   q: skip it ", "dim"))


@contextmanager
def _set_environment(**variables: str) -> Iterator[None]:
    """Set environment variables during the block, and restore them afterwards. The process can continue after
    the tour, because the first start of `hermes` offers it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
    """Turn SIGTERM and SIGHUP into an exception, so that the temporary home is deleted on exit. Signals that
    were ignored stay ignored."""
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
