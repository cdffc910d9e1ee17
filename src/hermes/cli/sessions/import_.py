"""`hermes sessions import FILE...`: sessions that were exported as JSONL, or those of another store, into a store.

A line is what stands between two line feeds, and holds one session. A line that cannot be read is told with its number
and left out; all others are taken in, each whole. Another store, of any version, is only read. Running it again adds
nothing.

A session that is here already is merged: messages that are missing are added; see `hermes.store.transfer.merge_plan`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from hermes.cli.command import DONE, REFUSED, Refused, Words, takes_dry_run, takes_json, takes_store
from hermes.cli.io.output import add_details, complain, say, say_json, shortened
from hermes.cli.io.progress import Progress
from hermes.cli.opened_store import opened, place
from hermes.errors import InvalidArgument
from hermes.store.transfer.import_policy import PLURALS
from hermes.text import format_count

if TYPE_CHECKING:
    from hermes.store.transfer.importer import Import
    from hermes.store.values import Imported

STDIN = "-"
STORE_MARK = b"SQLite format 3\0"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b"\0 \t\r\n"
"""What may stand around an object: also the zeros that a crash leaves at the end of a file."""


class Unreadable(NamedTuple):
    file: str
    line: int
    why: str


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, import_files)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="JSONL with one session a line, another store (state.db), or - for stdin",
    )
    parser.add_argument(
        "--trusted",
        action="store_true",
        help="the files are yours: also take over system prompts, directories, owners, chats and model settings",
    )
    takes_dry_run(parser)
    takes_json(parser)


def import_files(arguments: argparse.Namespace) -> int:
    paths = [None if name == STDIN else Path(name).expanduser() for name in arguments.files]
    for path in paths:
        if path is not None and not path.exists():
            raise Refused(f"no such file: {path}")
        if path is not None and path.is_dir():
            raise Refused(f"{path} is a folder; name the files in it")
        if path is not None and place(arguments).exists() and path.samefile(place(arguments)):
            raise Refused(f"{path} is the store that the sessions would be imported into")
    unreadable: list[Unreadable] = []
    total = sum(path.stat().st_size for path in paths if path is not None)
    with opened(arguments, makes=True) as db:
        taking = db.importing(dry_run=arguments.dry_run, trusted=arguments.trusted)
        try:
            with Progress("Importing", total, shown=None not in paths) as progress, taking:
                for name, path in zip(arguments.files, paths, strict=True):
                    if path is not None and _is_store(path):
                        unreadable += _import_store(taking, name, path, progress)
                    else:
                        unreadable += _import_one(taking, "stdin" if path is None else name, path, progress)
        finally:  # also of an import that was broken off: what it took in stays
            _tell(taking, unreadable, arguments)
    return REFUSED if unreadable or taking.in_use else DONE


def _import_one(taking: Import, name: str, path: Path | None, progress: Progress) -> Iterator[Unreadable]:
    with path.open("rb") if path is not None else nullcontext(sys.stdin.buffer) as file:
        for number, line in enumerate(_lines(file), 1):
            progress.step(len(line))
            why = _take(taking, line)
            if why is not None:
                yield Unreadable(name, number, why)


def _import_store(taking: Import, name: str, path: Path, progress: Progress) -> Iterator[Unreadable]:
    from hermes.db.session_db import SessionDB

    size = path.stat().st_size
    try:
        with SessionDB(path, read_only=True) as source:
            count = source.session_count()
            for number, session in enumerate(source.export_each(), 1):
                try:
                    taking.take(session)
                except InvalidArgument as problem:
                    yield Unreadable(name, number, str(problem))
                progress.step(size // max(count, 1))
    finally:
        SessionDB.remove_readable_copy(path)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    for number, line in enumerate(file):
        yield line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line


def _take(taking: Import, line: bytes) -> str | None:
    """Take in the session of a line; why not, if that cannot be done."""
    text = line.strip(BLANK)
    if not text:
        return None
    try:
        session = _decoded(text)
    except (ValueError, RecursionError) as problem:
        is_whole = line.endswith(b"\n")
        return f"not valid JSON: {problem}" if is_whole else f"cut off in the middle: {problem}"
    try:
        taking.take(session)
    except InvalidArgument as problem:
        return str(problem)
    return None


def _decoded(text: bytes) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        import json

        return json.loads(
            text
        )  # numbers that are not finite or too large, and odd escapes: Python writes them


def _tell(taking: Import, unreadable: list[Unreadable], arguments: argparse.Namespace) -> None:
    told = taking.make_result()
    read = taking.count + len(unreadable)
    if arguments.json:
        say_json(
            {
                "dry_run": arguments.dry_run,
                "read": read,
                "added": told.added,
                "restored": told.restored,
                "grown": dict(told.grown),
                "branched": dict(told.branched),
                "already_here": told.skipped,
                "newer_here": dict(told.newer_here),
                "updated": told.updated,
                "in_use": told.in_use,
                "messages": told.messages,
                "renamed": told.renamed,
                "detached": told.detached,
                "incomplete": told.incomplete,
                "trusted": arguments.trusted,
                "taken_over": dict(told.taken_over),
                "left_out": dict(told.left_out),
                "unreadable": [one._asdict() for one in unreadable],
            }
        )
        return
    left_out = f"; {format_count(len(unreadable), 'line')} unreadable" if unreadable else ""
    parts = ", ".join(_summarize(told, dry_run=arguments.dry_run))
    say([f"Read {format_count(taking.count, 'session')}: {parts}{left_out}"])
    say(shortened(_describe_merges(told, dry_run=arguments.dry_run, trusted=arguments.trusted)))
    say(shortened(_renamed(told.renamed, arguments.dry_run)))
    say(shortened([f"{one}: its parent is neither here nor in the file" for one in told.detached]))
    say(
        shortened(
            [f"{one}: carries messages that are neither here nor in the file" for one in told.incomplete]
        )
    )
    say(describe_trust(told, dry_run=arguments.dry_run))
    if told.in_use:
        complain(
            f"{format_count(len(told.in_use), 'session')} did not grow because somebody is working there now; "
            "import again later:"
        )
        add_details(shortened(list(told.in_use)))
    if unreadable:
        complain(f"{format_count(len(unreadable), 'line')} could not be read:")
        add_details(shortened([f"{one.file}:{one.line}: {one.why}" for one in unreadable]))


def _summarize(told: Imported, *, dry_run: bool) -> list[str]:
    """The parts of the first line: how many sessions were added, grew, branched or stayed."""
    would = "would be " if dry_run else ""
    grown = {name: count for name, count in told.grown.items() if name not in told.branched.values()}
    merged = sum(told.grown.values())
    parts = [f"{len(told.added)} {would}added ({format_count(told.messages - merged, 'message')})"]
    if told.restored:
        parts.append(f"{len(told.restored)} {would}brought back from the trash")
    if grown:
        verb = "would grow" if dry_run else "grown"
        parts.append(f"{len(grown)} {verb} by {format_count(sum(grown.values()), 'message')}")
    if told.branched:
        count = format_count(merged - sum(grown.values()), "message")
        parts.append(f"{len(told.branched)} {would}branched ({count})")
    if told.skipped:
        parts.append(f"{len(told.skipped)} already here")
    if told.in_use:
        parts.append(f"{len(told.in_use)} in use")
    return parts


def _describe_merges(told: Imported, *, dry_run: bool, trusted: bool) -> list[str]:
    """A line for each session that was here and is not just the same or grown."""
    why = "went on here and in the file" if trusted else "has messages in the file that are not here"
    lines = []
    for given, branch in told.branched.items():
        count = told.grown.get(branch, 0)
        are = "would be" if dry_run else "is" if count == 1 else "are"
        if count:
            lines.append(
                f"{given} {why}; the file's {format_count(count, 'message')} {are} in the branch {branch}"
            )
    lines += [
        f"{given} continues a session that went on here; it {'would be' if dry_run else 'is'} a branch"
        for given, branch in told.branched.items()
        if branch not in told.grown
    ]
    lines += [
        f"{session_id}: already here, with {format_count(count, 'newer message')}"
        for session_id, count in told.newer_here.items()
    ]
    if told.updated:
        lines.append(f"Updated titles, tags, ends or counts of {format_count(len(told.updated), 'session')}")
    return lines


def _is_store(path: Path) -> bool:
    if not path.is_file():  # what is read from a pipe is gone
        return False
    from hermes.store.engine_choice import is_encrypted

    with path.open("rb") as file:
        return file.read(len(STORE_MARK)) == STORE_MARK or is_encrypted(path)


def describe_trust(told: Imported, *, dry_run: bool = False) -> list[str]:
    """One line about what steers behaviour: what was taken over, or left out because nobody trusts the file."""
    counts = told.taken_over or told.left_out
    if not counts:
        return []
    listed = ", ".join(
        format_count(count, name, PLURALS.get(name, "")) for name, count in sorted(counts.items())
    )
    if told.taken_over:
        return [f"{'Would take' if dry_run else 'Took'} over: {listed}"]
    return [f"Left out: {listed}. For files that you trust, --trusted takes them over."]


def _renamed(renamed: dict[str, str], dry_run: bool) -> list[str]:
    return [
        f"{given} is a different session here; "
        + ("it would get a new id" if dry_run else f"imported as {here}")
        for given, here in renamed.items()
    ]
