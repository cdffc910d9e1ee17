"""`hermes sessions import FILE...`: import sessions from JSONL exports or from another store.

In an export, each line contains one session. An unreadable line is skipped and reported with its number. All
other sessions are imported, each atomically. Another store can have any version; it is read but not changed.
Importing the same file again adds nothing.

A session that already exists is merged: missing messages are added. See `hermes.store.transfer.merge_plan`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from hermes.cli.command import Words, add_dry_run_option, add_json_option, add_store_option
from hermes.cli.exit_codes import DONE, REFUSED, Refused
from hermes.cli.io.output import print_details, print_error, print_json, print_lines, shorten_lines
from hermes.cli.io.progress import Progress
from hermes.cli.store_access import get_store_path, open_store
from hermes.errors import InvalidArgument
from hermes.store.transfer.import_policy import PLURALS
from hermes.text import format_count

if TYPE_CHECKING:
    from hermes.store.transfer.importer import Import
    from hermes.store.values import Imported

JSON_FIELDS = (
    "dry_run", "read", "added", "restored", "grown", "branched", "already_here", "newer_here", "updated", "in_use",
    "messages", "renamed", "detached", "incomplete", "trusted", "taken_over", "left_out", "unreadable",
)  # fmt: skip
STDIN = "-"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b"\0 \t\r\n"
"""Bytes that may surround an object. The zero byte is included, because a crash can leave zeros at the end of
a file."""


class Unreadable(NamedTuple):
    file: str
    line: int
    why: str


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, import_files)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="JSONL with one session per line, another store (state.db), or - for stdin",
    )
    parser.add_argument(
        "--trusted",
        action="store_true",
        help="trust the files: also import system prompts, directories, owners, chats and model settings",
    )
    add_dry_run_option(parser)
    add_json_option(parser, JSON_FIELDS)


def import_files(arguments: argparse.Namespace) -> int:
    paths = [None if name == STDIN else Path(name).expanduser() for name in arguments.files]
    for path in paths:
        if path is not None and not path.exists():
            raise Refused(f"no such file: {path}")
        if path is not None and path.is_dir():
            raise Refused(f"{path} is a folder; name the files in it")
        if (
            path is not None
            and get_store_path(arguments).exists()
            and path.samefile(get_store_path(arguments))
        ):
            raise Refused(f"{path} is the store that the sessions would be imported into")
        _refuse_other_format(path)
    unreadable: list[Unreadable] = []
    total = sum(path.stat().st_size for path in paths if path is not None)
    with open_store(arguments, makes=True) as db:
        taking = db.importing(dry_run=arguments.dry_run, trusted=arguments.trusted)
        try:
            with Progress("Importing", total, is_visible=None not in paths) as progress, taking:
                for name, path in zip(arguments.files, paths, strict=True):
                    if path is not None and _is_store(path):
                        unreadable += _import_store(taking, name, path, progress)
                    else:
                        unreadable += _import_lines(taking, "stdin" if path is None else name, path, progress)
        finally:  # an interrupted import keeps the sessions that it imported
            _report(taking, unreadable, arguments)
    return REFUSED if unreadable or taking.in_use else DONE


def _refuse_other_format(path: Path | None) -> None:
    """Raise Refused if the file has a known format that contains no sessions. This is checked before anything
    is imported."""
    from hermes.export.export_recognition import HEAD_BYTES, describe_unimportable

    if path is None:
        head = _peek_stdin()
    elif not path.is_file() or _is_store(path):
        return
    else:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    if (description := describe_unimportable(head)) is not None:
        raise Refused(
            f"{'stdin' if path is None else path} is {description}; sessions can be imported from JSONL "
            "(hermes sessions export FILE.jsonl) or from another store"
        )


def _peek_stdin() -> bytes:
    """Return the beginning of stdin without consuming it."""
    stdin = sys.stdin.buffer
    return stdin.peek() if isinstance(stdin, BufferedReader) else b""


def _import_lines(taking: Import, name: str, path: Path | None, progress: Progress) -> Iterator[Unreadable]:
    with path.open("rb") if path is not None else nullcontext(sys.stdin.buffer) as file:
        for number, line in enumerate(_read_lines(file), 1):
            progress.step(len(line))
            why = _import_line(taking, line)
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


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    for number, line in enumerate(file):
        yield line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line


def _import_line(taking: Import, line: bytes) -> str | None:
    """Import the session in one line of an export. Return None, or the reason why the session could not be
    imported."""
    text = line.strip(BLANK)
    if not text:
        return None
    try:
        session = _decode(text)
    except (ValueError, RecursionError) as problem:
        is_whole = line.endswith(b"\n")
        return f"not valid JSON: {problem}" if is_whole else f"cut off in the middle: {problem}"
    try:
        taking.take(session)
    except InvalidArgument as problem:
        return str(problem)
    return None


def _decode(text: bytes) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        import json

        # Python's json module writes non-finite numbers, very large numbers and unusual escapes, which the
        # fast parser rejects.
        return json.loads(text)


def _report(taking: Import, unreadable: list[Unreadable], arguments: argparse.Namespace) -> None:
    imported = taking.make_result()
    read = taking.count + len(unreadable)
    if arguments.json:
        print_json(
            {
                "dry_run": arguments.dry_run,
                "read": read,
                "added": imported.added,
                "restored": imported.restored,
                "grown": dict(imported.grown),
                "branched": dict(imported.branched),
                "already_here": imported.skipped,
                "newer_here": dict(imported.newer_here),
                "updated": imported.updated,
                "in_use": imported.in_use,
                "messages": imported.messages,
                "renamed": imported.renamed,
                "detached": imported.detached,
                "incomplete": imported.incomplete,
                "trusted": arguments.trusted,
                "taken_over": dict(imported.taken_over),
                "left_out": dict(imported.left_out),
                "unreadable": [problem._asdict() for problem in unreadable],
            },
            arguments.json,
        )
        return
    left_out = f"; {format_count(len(unreadable), 'line')} unreadable" if unreadable else ""
    parts = ", ".join(_summarize(imported, dry_run=arguments.dry_run))
    print_lines([f"Read {format_count(taking.count, 'session')}: {parts}{left_out}"])
    print_lines(
        shorten_lines(_describe_merges(imported, dry_run=arguments.dry_run, trusted=arguments.trusted))
    )
    print_lines(shorten_lines(_describe_renames(imported.renamed, arguments.dry_run)))
    print_lines(
        shorten_lines(
            [
                f"{session_id}: its parent is neither in the store nor in the file"
                for session_id in imported.detached
            ]
        )
    )
    print_lines(
        shorten_lines(
            [
                f"{session_id}: its context has messages that are neither in the store nor in the file"
                for session_id in imported.incomplete
            ]
        )
    )
    print_lines(describe_trust(imported, dry_run=arguments.dry_run))
    if imported.in_use:
        print_error(
            f"{format_count(len(imported.in_use), 'session')} not extended because they are in use; "
            "import again later:"
        )
        print_details(shorten_lines(list(imported.in_use)))
    if unreadable:
        print_error(f"{format_count(len(unreadable), 'line')} could not be read:")
        print_details(
            shorten_lines([f"{problem.file}:{problem.line}: {problem.why}" for problem in unreadable])
        )


def _summarize(imported: Imported, *, dry_run: bool) -> list[str]:
    """Return the parts of the summary line, such as how many sessions were added, grew, branched or were
    unchanged."""
    would = "would be " if dry_run else ""
    grown = {name: count for name, count in imported.grown.items() if name not in imported.branched.values()}
    merged = sum(imported.grown.values())
    parts = [f"{len(imported.added)} {would}added ({format_count(imported.messages - merged, 'message')})"]
    if imported.restored:
        parts.append(f"{len(imported.restored)} {would}brought back from the trash")
    if grown:
        verb = "would grow" if dry_run else "grown"
        parts.append(f"{len(grown)} {verb} by {format_count(sum(grown.values()), 'message')}")
    if imported.branched:
        count = format_count(merged - sum(grown.values()), "message")
        parts.append(f"{len(imported.branched)} {would}branched ({count})")
    if imported.skipped:
        parts.append(f"{len(imported.skipped)} already here")
    if imported.in_use:
        parts.append(f"{len(imported.in_use)} in use")
    return parts


def _describe_merges(imported: Imported, *, dry_run: bool, trusted: bool) -> list[str]:
    """Return lines about existing sessions: those that branched, those with newer messages in the store, and
    the number of updated ones."""
    why = (
        "was continued in the store and in the file"
        if trusted
        else "has messages in the file that are not in the store"
    )
    lines = []
    for session_id, branch in imported.branched.items():
        count = imported.grown.get(branch, 0)
        are = "would be" if dry_run else "is" if count == 1 else "are"
        if count:
            lines.append(
                f"{session_id} {why}; the file's {format_count(count, 'message')} {are} in the branch {branch}"
            )
    lines += [
        f"{session_id} continues a session that was continued in the store, too;"
        f" it {'would become' if dry_run else 'became'} a branch"
        for session_id, branch in imported.branched.items()
        if branch not in imported.grown
    ]
    lines += [
        f"{session_id}: already here, with {format_count(count, 'newer message')}"
        for session_id, count in imported.newer_here.items()
    ]
    if imported.updated:
        lines.append(
            f"Updated titles, tags, ends or counts of {format_count(len(imported.updated), 'session')}"
        )
    return lines


def _is_store(path: Path) -> bool:
    if not path.is_file():  # a pipe can be read only once
        return False
    from hermes.store.engine_choice import is_store

    return is_store(path)


def describe_trust(imported: Imported, *, dry_run: bool = False) -> list[str]:
    """Return a line about the fields that control behaviour. The line names the fields that were imported, or
    those that were left out because the file is not trusted."""
    counts = imported.taken_over or imported.left_out
    if not counts:
        return []
    listed = ", ".join(
        format_count(count, name, PLURALS.get(name, "")) for name, count in sorted(counts.items())
    )
    if imported.taken_over:
        return [f"{'Would also import' if dry_run else 'Also imported'}: {listed}"]
    return [f"Left out: {listed}. For files that you trust, --trusted imports them."]


def _describe_renames(renamed: dict[str, str], dry_run: bool) -> list[str]:
    return [
        f"{session_id} is a different session here; "
        + ("it would get a new id" if dry_run else f"imported as {here}")
        for session_id, here in renamed.items()
    ]
