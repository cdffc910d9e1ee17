"""`hermes sessions export OUTPUT`: conversations into a file, whole or not at all, or to stdout."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from hermes import clock, home
from hermes.cli.command import Words, add_dry_run_option, add_store_option, parse_days, parse_text
from hermes.cli.exit_codes import DONE, Refused, WrongUsage
from hermes.cli.filters import add_selection_options, add_time_options, is_filtered, make_selection
from hermes.cli.io.output import format_size, print_lines
from hermes.cli.io.output_file import check_target, is_stream, open_output, restore_backup
from hermes.cli.io.progress import Progress
from hermes.cli.store_access import find_session, open_store, refuse_store_files, require_store
from hermes.export.formats import FORMATS, Format, choose_format
from hermes.export.plan import Conversation, Session, group_conversations, keep_prompts, make_file_stem
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.sessions.selection import Outline

STDOUT = "-"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, export_sessions)
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        help="a file, a folder (which gets a file named for the session), or - for stdout",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a file that exists; an earlier export is replaced without it and kept as FILE~",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="jsonl: everything, can be imported; md: a document per conversation; html: one page with search; "
        "trace: Claude Code's events (without it, by the ending of OUTPUT, else jsonl)",
    )
    parser.add_argument(
        "--session-id",
        type=parse_text,
        metavar="ID",
        help="only this conversation: an id, the beginning of one, or a title",
    )
    parser.add_argument("--segment", action="store_true", help="of --session-id only that one session")
    parser.add_argument(
        "--lineage",
        action="store_true",
        help="also all relatives of what was chosen: branches, resets and subagents",
    )
    add_selection_options(parser)
    parser.add_argument(
        "--older-than", type=parse_days, metavar="DAYS", help="only those without activity for so many days"
    )
    add_time_options(parser)
    parser.add_argument("--only", choices=["user-prompts"], help="only what people said")
    parser.add_argument("--redact", action="store_true", help="mask keys, passwords and other secrets")
    parser.add_argument(
        "--remote-images",
        action="store_true",
        help="md: keep pictures, which whoever opens the document loads from the web",
    )
    add_dry_run_option(parser)


class Target(NamedTuple):
    path: Path | None
    """None is stdout."""
    conversations: list[Conversation]


class SessionReader:
    """Sessions read one at a time, and how many there were."""

    def __init__(self, db: SessionDB, arguments: argparse.Namespace, progress: Progress) -> None:
        self._db = db
        self._redact, self._prompts = arguments.redact, arguments.only is not None
        self._progress = progress
        self.sessions = self.messages = self.bytes = 0

    def __call__(self, session_id: str) -> Session | None:
        session = self._db.export_session(session_id, redact=self._redact)
        if session is None:
            return None
        self._progress.step(len(session["messages"]) + 1)
        exported = keep_prompts(session) if self._prompts else session
        if exported is not None:
            self.sessions += 1
            self.messages += len(exported["messages"])
        return exported


def export_sessions(arguments: argparse.Namespace) -> int:
    _check_arguments(arguments)
    store = require_store(arguments)
    chosen_format = choose_format(arguments.format, arguments.output)
    if arguments.remote_images and chosen_format is not FORMATS["md"]:
        raise WrongUsage("--remote-images goes with Markdown: --format md")
    with open_store(arguments) as db:
        name = _find_named(db, arguments)
        outlines = _choose_outlines(db, name, arguments)
        chosen = group_conversations(_apply_options(outlines, arguments), name)
        where, targets = _plan_targets(arguments, chosen_format, chosen)
        makes_folder = arguments.output.endswith("/")
        _check_targets(targets, store, arguments.force, makes_folder)
        if makes_folder and not arguments.dry_run:
            home.make_private_folder(Path(arguments.output).expanduser())
        total = sum(outline.message_count + 1 for outline in outlines)
        with Progress("Exporting", total, is_shown=where != STDOUT or not sys.stdout.isatty()) as progress:
            read = SessionReader(db, arguments, progress)
            backups = _write_all(targets, chosen_format, read, arguments)
    if arguments.dry_run:
        print_lines([_describe_dry_run(len(chosen), read, where)])
    elif where != STDOUT:
        print_lines(
            [
                f"Exported {format_count(read.sessions, 'session')} to {make_printable(where)}",
                *_format_backups(backups),
            ]
        )
    return DONE


def _check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.session_id is None:
        if arguments.segment:
            raise WrongUsage("--segment goes with --session-id")
    elif is_filtered(arguments) or any((arguments.older_than is not None, arguments.since, arguments.until)):
        raise WrongUsage("--session-id names one conversation; it does not go with filters")
    elif arguments.segment and arguments.lineage:
        raise WrongUsage("--segment is one session, --lineage a whole family; choose one")


# Which conversations


def _find_named(db: SessionDB, arguments: argparse.Namespace) -> str | None:
    if arguments.session_id is None:
        return None
    return find_session(db, arguments.session_id, segment=arguments.segment)


def _choose_outlines(db: SessionDB, name: str | None, arguments: argparse.Namespace) -> list[Outline]:
    whole = name is not None and not arguments.segment
    found = db.outlines(_select_sessions(db, arguments) if name is None else [name], whole=whole)
    return _add_relatives(db, found) if arguments.lineage else found


def _apply_options(outlines: list[Outline], arguments: argparse.Namespace) -> list[Outline]:
    """Outlines as far as they may be told: a title may hold a secret, and a part is not as many as the whole."""
    if arguments.redact:
        from hermes.secrets import redact

        outlines = [
            outline._replace(
                title=redact(outline.title) if outline.title else None, preview=redact(outline.preview)
            )
            for outline in outlines
        ]
    return [outline._replace(message_count=0) for outline in outlines] if arguments.only else outlines


def _select_sessions(db: SessionDB, arguments: argparse.Namespace) -> list[str]:
    filters = make_selection(arguments)
    if arguments.older_than is not None:
        before = clock.now() - arguments.older_than * clock.DAY
        filters = filters._replace(until=before if filters.until is None else min(before, filters.until))
    return db.select_sessions(filters)


def _add_relatives(db: SessionDB, found: Sequence[Outline]) -> list[Outline]:
    """With everything that came out of the first session of each family; who is a relative is seen only once."""
    related: dict[str, None] = {}
    for outline in found:
        if outline.id not in related:
            family = db.family(outline.id)
            related.update({} if family is None else {member.id: None for _, member in family.walk()})
            related[outline.id] = None
    return db.outlines(related, whole=True)


# Where to


def _plan_targets(
    arguments: argparse.Namespace, export_format: Format, chosen: list[Conversation]
) -> tuple[str, list[Target]]:
    """(what to call it, files with what belongs into each)."""
    output: str = arguments.output
    if output == STDOUT:
        return STDOUT, [Target(None, chosen)]
    path = Path(output).expanduser()
    if not (path.is_dir() or output.endswith("/")):
        return output, [Target(path, chosen)]
    if export_format.is_split:
        targets = [
            Target(
                path / f"{make_file_stem(conversation, export_format.is_titled)}{export_format.ending}",
                [conversation],
            )
            for conversation in chosen
        ]
    else:
        stem = make_file_stem(chosen[0], False) if len(chosen) == 1 else f"sessions_{clock.format_stamp()}"
        targets = [Target(path / f"{stem}{export_format.ending}", chosen)]
    return str(targets[0].path) if len(targets) == 1 else output, _make_names_unique(targets)


def _make_names_unique(targets: list[Target]) -> list[Target]:
    """Different ids may look the same as names of files, where letters of both cases do so, too."""
    taken: set[str] = set()
    apart: list[Target] = []
    for path, inside in targets:
        assert path is not None
        name, number = path.name, 1
        while name.casefold() in taken:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        taken.add(name.casefold())
        apart.append(Target(path.with_name(name), inside))
    return apart


def _check_targets(targets: Sequence[Target], store: Path, force: bool, makes_folder: bool) -> None:
    paths = [path for path, _ in targets if path is not None]
    refuse_store_files(store, *paths)
    for path in paths:
        if not path.parent.is_dir() and not makes_folder:
            raise Refused(f"there is no folder {path.parent}")
        if not is_stream(path):
            check_target(path, force=force)


# Writing


def _write_all(
    targets: Sequence[Target], export_format: Format, read: SessionReader, arguments: argparse.Namespace
) -> list[Path]:
    """Write every file; the previous exports that were kept."""
    written: list[Path] = []
    replaced: dict[Path, Path] = {}
    try:
        for path, inside in targets:
            options = {"remote_images": True} if arguments.remote_images else {}
            pieces = (
                piece.encode(errors="replace") for piece in export_format.write(inside, read, **options)
            )
            if arguments.dry_run:
                read.bytes += sum(map(len, pieces))
                continue
            if path is None or is_stream(path):
                with _open_stream(path) as stream:
                    stream.writelines(pieces)
                continue
            is_new = not os.path.lexists(path)
            with open_output(path, force=arguments.force) as output:
                output.stream.writelines(pieces)
            if output.backup is not None:
                replaced[path] = output.backup
            elif is_new:
                written.append(path)
    except BaseException:  # all files or none, as far as none was forced
        for path in written:
            with suppress(OSError):
                path.unlink()
        for path, backup in replaced.items():
            restore_backup(path, backup)
        raise
    return list(replaced.values())


@contextmanager
def _open_stream(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # Links in /dev lead to streams of this process. No other link is followed, whenever it appeared.
    follow = 0 if path.absolute().is_relative_to("/dev") else os.O_NOFOLLOW
    with os.fdopen(os.open(path, os.O_WRONLY | follow), "wb") as stream:
        yield stream


def _format_backups(backups: Sequence[Path]) -> list[str]:
    if len(backups) == 1:
        return [f"Kept the previous export as {make_printable(backups[0].name)}"]
    return [f"Kept {len(backups)} previous exports, with ~ behind their names"] if backups else []


def _describe_dry_run(count: int, read: SessionReader, where: str) -> str:
    parts = f"{format_count(read.sessions, 'session')}, {format_count(read.messages, 'message')}"
    place = "stdout" if where == STDOUT else make_printable(where)
    return f"Would export {format_count(count, 'conversation')} ({parts}), about {format_size(read.bytes)}, to {place}"
