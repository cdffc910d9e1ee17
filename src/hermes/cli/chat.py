"""`hermes` and `hermes chat`: start a conversation, continue one, or ask one question.

`hermes.cli.io.command_line` prepares the arguments, so that a question needs neither a flag nor quotes, and a
title after `-c` or `-r` needs no quotes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.chat import is_installed
from hermes.cli.command import Words, add_json_option, add_store_option, parse_source, parse_text
from hermes.cli.exit_codes import DONE, INTERRUPTED, REFUSED, Refused, WrongUsage
from hermes.cli.io.output import print_error, print_json, print_lines
from hermes.cli.io.prompts import CANCELLED
from hermes.cli.store_access import (
    describe_missing_store,
    describe_trashed,
    get_sessions_folder,
    get_store_path,
)
from hermes.config.extras import format_install
from hermes.text import make_printable, spell_controls

if TYPE_CHECKING:
    from hermes.agent.approvals.request import ApprovalRequest, Decision
    from hermes.agent.components import AgentComponents
    from hermes.agent.tool import Tool
    from hermes.chat.input.attachments import File
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import AnyStore, SessionDB

MISSING = "the chat is not installed; install it with: {}"
NEEDS_QUESTION = "--json needs -q"
WAITS_SILENTLY_S = 3.0
"""How long to wait for input from a pipe before a note says that the program is waiting."""
STDIN = "-"
"""The question `-` means that the question is read from standard input."""


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(parts=None)
    add_main_options(parser)
    parser.add_argument("--here", action="store_true", help="with -c: the last conversation of this project")
    add_json_option(parser)
    parser.add_argument("-m", "--model", type=parse_text, metavar="NAME", help="the model that answers")
    parser.add_argument("--base-url", type=parse_text, metavar="URL", help="the address of the model")
    parser.add_argument(
        "--source", type=parse_source, metavar="S", help="the source of new conversations (cli)"
    )
    parser.add_argument("--incognito", action="store_true", help="do not store this conversation")
    parser.add_argument("--in", dest="cwd", type=Path, metavar="DIR", help="work in this directory")
    add_store_option(parser, run_command)


def add_main_options(parser: argparse._ActionsContainer) -> None:
    """Add the argument for a question and the most important flags of `hermes chat`. `hermes --help` also lists
    these."""
    parser.add_argument(
        "question",
        nargs="*",
        type=parse_text,
        metavar="QUESTION",
        help="open the chat with this question; without a terminal, print the answer",
    )
    parser.add_argument(
        "-c",
        "--continue",
        dest="go_on",
        nargs="?",
        const="",
        type=parse_text,
        metavar="ID|TITLE",
        help="continue the last terminal conversation, or the one with this name (no quotes needed)",
    )
    parser.add_argument(
        "-r",
        "--resume",
        type=parse_text,
        metavar="ID|TITLE",
        help="continue the conversation with this id or title; `latest` is the last one",
    )
    parser.add_argument(
        "-q",
        "--query",
        type=parse_text,
        metavar="QUESTION",
        help="ask one question and print the answer; `-` reads the question from stdin",
    )
    parser.add_argument(
        "-a",
        "--attach",
        action="append",
        default=[],
        type=parse_text,
        metavar="FILE",
        help="attach a text file or a picture to the question; may be repeated",
    )


def run_command(arguments: argparse.Namespace) -> int:
    _check(arguments)
    question = _read_question(arguments)
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    typed = " ".join(arguments.question)
    opens_chat = has_terminal and not arguments.json and typed != STDIN and arguments.query is None
    if question is None or opens_chat:
        if arguments.json:
            raise WrongUsage(NEEDS_QUESTION)
        if not is_installed():
            raise Refused(MISSING.format(format_install("chat", "tui")))
        if not arguments.parts and _is_first_run(arguments):
            from hermes.cli.setup import choose_start

            # Without a terminal, the user cannot choose, so the demo runs.
            code = choose_start(arguments.main) if has_terminal else int(arguments.main(["demo"]))
            if code is not None:
                return code
        elif not has_terminal:
            if _is_resuming(arguments):  # an unknown or ambiguous name is reported first
                with _open_store(arguments) as db:
                    _find_session(db, arguments, can_pick=False)
            raise Refused("the chat needs a terminal; use -q to ask one question without one")
    from hermes.chat.input.attachments import read_named_file

    files = [read_named_file(name, Path.cwd()) for name in arguments.attach]
    with _open_store(arguments) as db:
        chosen = _find_session(db, arguments, can_pick=question is None or opens_chat)
        import asyncio

        if question is not None and not opens_chat:
            return asyncio.run(_answer_question(db, arguments, question, files, chosen))
        asyncio.run(_run_chat(db, arguments, chosen, question or "", files))
    return DONE


def _is_resuming(arguments: argparse.Namespace) -> bool:
    return arguments.go_on is not None or arguments.resume is not None


def _is_first_run(arguments: argparse.Namespace) -> bool:
    """Return whether the user has not chosen a model yet and the command line names no conversation."""
    if _is_resuming(arguments):
        return False
    from hermes.cli.setup import is_first_run

    return is_first_run(arguments)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.here and arguments.go_on != "":
        raise WrongUsage("--here needs -c without a name: it continues the last conversation of this project")
    if arguments.go_on is not None and arguments.resume is not None:
        raise WrongUsage("-c and -r each name the conversation to continue; choose one")
    if arguments.question and arguments.query is not None:
        raise WrongUsage("there are two questions: one with -q and one without; choose one")
    if arguments.json and arguments.query is None and not arguments.question and sys.stdin.isatty():
        raise WrongUsage(NEEDS_QUESTION)
    if arguments.attach and arguments.query is None and not arguments.question and sys.stdin.isatty():
        raise WrongUsage("-a needs a question; in the chat, @FILE attaches a file")
    if arguments.incognito and _is_resuming(arguments):
        raise WrongUsage("--incognito starts a new conversation; it cannot continue another")
    if arguments.cwd is not None:
        arguments.cwd = arguments.cwd.expanduser().absolute()
        if not arguments.cwd.is_dir():
            raise Refused(f"there is no directory '{arguments.cwd}'")


def _read_question(arguments: argparse.Namespace) -> str | None:
    """Return the question of the user: the text on the command line, followed by the text piped to stdin.
    Return None if there is neither."""
    typed = " ".join(arguments.question) if arguments.question else arguments.query
    piped = "" if sys.stdin.isatty() and typed != STDIN else _read_stdin()
    if typed is None and not piped.strip():
        return None
    question = "\n\n".join(part for part in ("" if typed == STDIN else typed or "", piped.strip()) if part)
    if not question.strip():
        raise WrongUsage("stdin has no question" if typed == STDIN else "the question is empty")
    return question


def _read_stdin() -> str:
    """Read stdin to its end. Print a note if no input arrives at first, because the writer may be slow or
    absent."""
    import select

    if sys.stdin.isatty():
        print_error("reading the question from the terminal; Ctrl-D ends it")
    elif not select.select([sys.stdin], [], [], WAITS_SILENTLY_S)[0]:
        print_error("waiting for stdin; use </dev/null if there is none")
    return sys.stdin.read()


@contextmanager
def _open_store(arguments: argparse.Namespace) -> Iterator[SessionDB]:
    """Open the store. Messages that the store cannot accept are written to a spool.

    For an incognito conversation, the store is opened read-only. An incognito or resumed conversation never
    creates the store. If the store does not exist, an empty temporary store is used instead.
    """
    from hermes.db.session_db import SessionDB

    path = get_store_path(arguments)
    if not path.exists() and (arguments.incognito or _is_resuming(arguments)):
        try:
            with _open_empty_store() as empty:
                yield empty
        except Refused as refusal:  # the conversation to continue was not found
            raise Refused(str(refusal), describe_missing_store(arguments)) from None
        return
    db = SessionDB(path, read_only=True) if arguments.incognito else SessionDB(path, spool=True)
    try:
        yield db
    finally:
        db.close()


@contextmanager
def _open_empty_store() -> Iterator[SessionDB]:
    """Open an empty temporary store, which is used if there is no store. The temporary store is deleted
    afterwards."""
    import tempfile

    from hermes.db.session_db import SessionDB

    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, SessionDB(Path(folder) / "empty.db") as db:
        yield db


def _find_session(db: SessionDB, arguments: argparse.Namespace, *, can_pick: bool) -> str | None:
    """Return the id of the conversation that the command line says to continue. Return None for a new
    conversation. If the name matches several conversations and `can_pick` is set, ask the user which one is
    meant. Without `can_pick`, raise Refused in that case."""
    from hermes.chat import conversation_lookup

    name = arguments.resume if arguments.resume is not None else arguments.go_on
    if name is None:
        return None
    if not name:
        workspace = db.workspace_of(arguments.cwd or Path.cwd()) if arguments.here else None
        row = conversation_lookup.find_latest(db, workspace)
        if row is None:
            where = f" in {workspace}" if workspace else ""
            raise Refused(f"No previous CLI session found to continue{where}.")
        return str(row["id"])
    from hermes.conversation.commands.lookup import find_conversation
    from hermes.store.people import LOCAL

    # -c prefers conversations of this machine; -r accepts any.
    meant = find_conversation(
        db,
        name,
        lambda: conversation_lookup.find_latest_id(db),
        preferred_owner=LOCAL if arguments.resume is None else None,
    )
    if meant.id is not None:
        return meant.id
    if not meant.candidates:
        hint = describe_trashed(db, name) or ["see `hermes sessions list`"]
        if arguments.resume is not None:
            raise Refused(f"Session not found: {name}", hint)
        raise Refused(f"No session found matching '{name}'.", hint)
    if can_pick:
        return _ask_which(name, meant.candidates)
    raise Refused(
        f"'{name}' could be any of these:", conversation_lookup.describe_candidates(meant.candidates)
    )


def _ask_which(name: str, candidates: Sequence[dict[str, Any]]) -> str:
    """Ask the user which conversation is meant. Keys typed before the question are kept for the first prompt."""
    import asyncio

    from hermes.chat import conversation_lookup
    from hermes.chat.input.question import Choice, Option, Stopped

    async def ask() -> str | None:
        described = conversation_lookup.describe_candidates(candidates)
        options = [Option(str(row["id"]), text) for row, text in zip(candidates, described, strict=True)]
        return await Choice(f"'{make_printable(name)}' could be any of these:", options).ask()

    try:
        chosen = asyncio.run(ask())
    except Stopped:
        raise KeyboardInterrupt from None
    if chosen is None:
        raise Refused(CANCELLED)
    return chosen


def _make_parts(arguments: argparse.Namespace) -> AgentComponents:
    if arguments.parts is not None:
        parts: AgentComponents = arguments.parts
        return parts
    from hermes.agent.factory import make_standard_components
    from hermes.session_kinds import classify_session

    is_job = classify_session(_get_source(arguments), child=False) == "job"
    more_tools = tuple if is_job else _make_job_tools
    parts = make_standard_components(is_job=is_job, make_more_tools=more_tools)
    parts = parts._replace(platforms=_list_platforms)
    return add_transcripts(parts, arguments)


def add_transcripts(parts: AgentComponents, arguments: argparse.Namespace) -> AgentComponents:
    """Let a conversation write its transcript file, if transcripts of all conversations are enabled."""
    from hermes.config.config_file import read_setting

    if read_setting("sessions", "transcripts") != "all":
        return parts
    return parts._replace(transcribe=lambda db, session_id: _transcribe(arguments, db, session_id))


def _make_job_tools() -> list[Tool]:
    """Return the tools with which the agent proposes scheduled jobs."""
    from hermes.jobs.cron.proposal_tool import ScheduleJob

    def check_destination(deliver: str) -> None:
        from hermes.gateway.scheduled_jobs import HomeSender  # slow to import, and seldom needed

        HomeSender(None).check_destination(deliver)

    return [ScheduleJob(check_destination)]


def _list_platforms() -> list[str] | None:
    """Return the platforms that the running gateway is connected to, or None if it is not running."""
    from hermes.gateway.ops.status_file import read_status

    status = read_status()
    if status is None or not status.is_running:
        return None
    return [name for name, platform in status.platforms.items() if platform.get("state") == "up"]


def _transcribe(arguments: argparse.Namespace, db: AnyStore, session_id: str) -> None:
    from hermes.db.session_db import SessionDB
    from hermes.gateway.mirror.transcripts import ALL, Transcripts

    assert isinstance(db, SessionDB)
    Transcripts(db, get_sessions_folder(arguments), ALL).catch_up_session(session_id)


def _get_source(arguments: argparse.Namespace) -> str:
    import os

    return arguments.source or os.environ.get("HERMES_SESSION_SOURCE", "").strip() or "cli"


def _make_conversation(
    db: SessionDB, arguments: argparse.Namespace, *, can_ask: bool
) -> Conversation[SessionDB]:
    from hermes.agent.components import ModelChoice
    from hermes.conversation.local_conversation import open_local_conversation

    return open_local_conversation(
        db,
        _make_parts(arguments),
        can_ask=can_ask,
        wish=ModelChoice(arguments.model, arguments.base_url),
        source=_get_source(arguments),
        cwd=arguments.cwd,
        incognito=arguments.incognito,
    )


async def _answer_question(
    db: SessionDB, arguments: argparse.Namespace, question: str, files: Sequence[File], chosen: str | None
) -> int:
    """Ask the agent one question and print the answer. Only the answer is written to stdout."""
    import asyncio
    import signal

    from hermes.chat.one_shot import ask, make_json

    can_ask = sys.stdin.isatty() and sys.stderr.isatty()
    conversation = _make_conversation(db, arguments, can_ask=can_ask)

    def listen() -> None:
        # Ctrl-C stops the turn; the messages so far are kept.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, conversation.stop)

    async def decide(request: ApprovalRequest) -> Decision | None:
        from hermes.chat.input.approval import ask_on_stderr
        from hermes.chat.input.question import Stopped

        try:
            return await ask_on_stderr(request)
        except Stopped:
            return None
        finally:
            listen()  # restore the Ctrl-C handler that the question replaced

    listen()
    try:
        if chosen is not None:
            await conversation.switch_to(chosen, asked_cwd=arguments.cwd, reopen=False)
        answer = await ask(conversation, question, print_error, decide if can_ask else None, files)
        if arguments.json:
            print_json(make_json(conversation, answer))
        elif answer.text:
            print_lines([spell_controls(answer.text)])
    finally:
        list_processes = conversation.parts.list_processes
        ended = () if list_processes is None else list_processes()
        await conversation.close()
        for command in ended:
            print_error(f"ended the background process: {make_printable(command, width_limit=200)}")
    if not conversation.incognito and not arguments.json:
        print(f"session_id: {make_printable(conversation.session_id)}", file=sys.stderr, flush=True)
    if answer.problem is not None:
        print_error(answer.problem)
        return INTERRUPTED if answer.outcome == "stopped" else REFUSED
    return DONE


async def _run_chat(
    db: SessionDB, arguments: argparse.Namespace, chosen: str | None, question: str, files: Sequence[File]
) -> None:
    from hermes.chat.commands.table import load_commands
    from hermes.chat.input.completion import ChatCompleter
    from hermes.chat.input.prompt_line import PromptLine
    from hermes.chat.terminal_loop import Chat
    from hermes.chat.view.screen import Screen

    conversation = _make_conversation(db, arguments, can_ask=True)
    chat = Chat(conversation, Screen())
    completer = ChatCompleter(db, load_commands().values(), lambda: conversation.cwd)
    chat.prompt_line = PromptLine(completer, chat.format_toolbar, incognito=arguments.incognito)
    await chat.run(chosen, arguments.cwd, question, files)
