"""`hermes sessions rebuild --from-transcripts`: build a new store from the gateway's transcripts.

The command reads nothing else and changes no existing file. The new store is built and verified in a
temporary folder, and then moved to its final path. An unreadable line is skipped and reported with its
number.
"""

from __future__ import annotations

import argparse
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import home
from hermes.cli.command import Words, add_dry_run_option, add_store_option
from hermes.cli.exit_codes import DONE, REFUSED, Refused, WrongUsage
from hermes.cli.io.output import print_details, print_error, print_lines, shorten_lines
from hermes.cli.io.progress import Progress
from hermes.cli.sessions.import_ import describe_trust
from hermes.cli.store_access import get_sessions_folder, get_store_path
from hermes.config import config_file
from hermes.errors import InvalidArgument
from hermes.export.output_file import refuse_store_files
from hermes.gateway.mirror.transcript_lines import META, TranscriptState, parse_time
from hermes.gateway.sessions.legacy_routing import ImportResult, import_file, mark_imported, read_entries
from hermes.gateway.settings import Keying
from hermes.store.arguments import check_database_path
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.store.values import Imported

NAME = "state.rebuilt.db"
CHAT_LIST = "sessions.json"
"""The list of chats that the gateway writes beside the transcripts."""


class ScanResult(NamedTuple):
    """The result of reading all transcripts once, before the store is built."""

    files: list[Path]
    """The transcripts from which the store is built."""
    left_out: dict[str, int]
    """How many transcripts are left out, for each reason."""
    carried: list[tuple[int, str]]
    """The messages that are also in the context of another session, as (message id, id of the session that
    stores it), sorted by message id."""
    messages: int
    unreadable: list[str]


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, rebuild_store)
    parser.add_argument(
        "--from-transcripts", action="store_true", help="from the gateway's transcripts in sessions/"
    )
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where the transcripts are (sessions/ of the home)"
    )
    parser.add_argument("--into", type=Path, metavar="FILE", help=f"the new store ({NAME} in the home)")
    parser.add_argument(
        "--trusted",
        action="store_true",
        help="trust the files of --folder: also import chats, owners, system prompts and directories",
    )
    add_dry_run_option(parser)


def rebuild_store(arguments: argparse.Namespace) -> int:
    from hermes.store.engine_choice import has_store

    if not arguments.from_transcripts:
        raise WrongUsage("name the source: --from-transcripts")
    folder = arguments.folder or get_sessions_folder(arguments)
    into = check_database_path(arguments.into or get_store_path(arguments).with_name(NAME))
    files = sorted(file for file in folder.glob("*.jsonl") if file.is_file())
    if not files:
        raise Refused(f"there are no transcripts in {folder}")
    if has_store(into):
        raise Refused(f"{into} exists; choose another name with --into")
    refuse_store_files(get_store_path(arguments), into, is_store=True)
    scan = _scan_files(files)
    if arguments.dry_run:
        lines = [
            f"Would rebuild {format_count(len(scan.files), 'session')} ({format_count(scan.messages, 'message')})"
        ]
    else:
        # The gateway wrote the folder beside the store, so that folder is trusted. Any other folder may come
        # from somebody else.
        is_own = folder.resolve() == get_sessions_folder(arguments).resolve()
        lines = _build_store(scan, folder, into, trusted=is_own or arguments.trusted)
    print_lines(
        [*lines, *(make_printable(f"{count} left out: {why}") for why, count in scan.left_out.items())]
    )
    if not scan.unreadable:
        return DONE
    print_error(f"{format_count(len(scan.unreadable), 'line')} could not be read:")
    print_details(shorten_lines(scan.unreadable))
    return REFUSED


# ---------------------------------------------------------------- reading


def _scan_files(files: list[Path]) -> ScanResult:
    """Read every transcript file once and collect the ids and defects that the rebuild must know. The text of
    messages is not kept."""
    good: list[Path] = []
    left_out: dict[str, int] = {}
    unreadable: list[str] = []
    ids: list[tuple[str, list[int]]] = []
    ranges: list[list[int]] = []
    messages = 0
    with Progress("Reading", sum(file.stat().st_size for file in files)) as progress:
        for file in files:
            copy = _read_copy(file)
            progress.step(file.stat().st_size)
            unreadable += [f"{file.name}:{number}" for number in copy.bad_lines]
            why = _find_defect(copy)
            if why is not None:
                left_out[why] = left_out.get(why, 0) + 1
                continue
            good.append(file)
            messages += len(copy.marks) or copy.older_count
            ids.append((file.stem, list(copy.marks)))
            ranges += copy.carries + copy.set_aside
    return ScanResult(good, left_out, sorted(_find_carried(ids, ranges)), messages, unreadable)


def _read_copy(file: Path, *, whole: bool = False) -> TranscriptState:
    with file.open("rb") as lines:
        return TranscriptState.from_lines(lines, whole=whole)


def _find_defect(copy: TranscriptState) -> str | None:
    if copy.deleted:
        return "deleted"
    if copy.columns is None and not copy.older_count:
        return "nothing in it can be read"
    return "in the trash" if copy.columns and copy.columns.get("trashed_at") is not None else None


def _find_carried(ids: Iterable[tuple[str, list[int]]], ranges: list[list[int]]) -> Iterator[tuple[int, str]]:
    """Yield (message id, id of its session) for each message whose id is within one of `ranges`. `ids` gives
    the message ids of each session. `ranges` are pairs of a first and a last message id."""
    joined: list[list[int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    starts = [first for first, _ in joined]
    for session_id, own in ids:
        for message_id in own:
            at = bisect_right(starts, message_id) - 1
            if at >= 0 and message_id <= joined[at][1]:
                yield message_id, session_id


# ---------------------------------------------------------------- making


def _build_store(scan: ScanResult, folder: Path, into: Path, *, trusted: bool) -> list[str]:
    """Build the new store from the scanned transcripts. Return the lines of the report to print."""
    from hermes.db.session_db import SessionDB

    entries, _ = read_entries(folder / CHAT_LIST)
    sources = {
        entry["session_id"]: entry.get("platform")
        for entry in entries.values()
        if isinstance(entry, dict) and isinstance(entry.get("session_id"), str)
    }
    home.make_private_folder(into.parent)
    with (
        tempfile.TemporaryDirectory(prefix=".rebuilding-", dir=into.parent) as aside,
        # this store is temporary; only the backup of it must be durable
        SessionDB(Path(aside) / NAME, durability="normal") as db,
    ):
        imported = _import_found(db, scan, sources, trusted=trusted)
        taken = import_file(db, folder / CHAT_LIST, _read_keying()) if trusted else ImportResult(0, [])
        mark_imported(db)
        db.backup(into)
    target = make_printable(str(into))
    counts = f"{format_count(len(imported.added), 'session')} ({format_count(imported.messages, 'message')})"
    return [
        f"Rebuilt {counts} and {format_count(taken.chats, 'chat')} into '{target}'",
        *(
            []
            if trusted
            else describe_trust(imported._replace(left_out=_count_chats(imported, len(entries))))
        ),
        *shorten_lines([f"{CHAT_LIST}: {why}" for why in taken.left_out]),
        *shorten_lines([f"{session_id}: its parent has no transcript" for session_id in imported.detached]),
        *shorten_lines(
            [
                f"{session_id}: its context has messages without a transcript"
                for session_id in imported.incomplete
            ]
        ),
        f"To replace the store with it: hermes sessions restore '{target}'",
    ]


def _count_chats(imported: Imported, chats: int) -> dict[str, int]:
    return {**imported.left_out, "chat": chats} if chats else dict(imported.left_out)


def _import_found(db: SessionDB, scan: ScanResult, sources: dict[str, Any], *, trusted: bool) -> Imported:
    with (
        Progress("Rebuilding", sum(file.stat().st_size for file in scan.files)) as progress,
        db.importing(trusted=trusted) as taking,
    ):
        for file in scan.files:
            try:
                taking.take(make_session(file.stem, _read_copy(file, whole=True), scan.carried, sources))
            except InvalidArgument as problem:
                scan.unreadable.append(f"{file.name}: {problem}")
            progress.step(file.stat().st_size)
    return taking.make_result()


def make_session(
    session_id: str, copy: TranscriptState, carried: list[tuple[int, str]], sources: dict[str, Any]
) -> dict[str, Any]:
    """Return a session, read from a transcript, in the format of an export."""
    if copy.columns is None:
        about = copy.older_meta or {}
        return {
            "id": session_id,
            "source": about.get("platform") or sources.get(session_id) or "unknown",
            "model": about.get("model"),
            "started_at": parse_time(about.get("timestamp")),
            "messages": [message for message in copy.older if message["role"] != META],
        }
    return {
        **copy.columns,
        "id": session_id,
        "messages": [copy.messages[message_id] for message_id in sorted(copy.messages)],
        "context": _split_ranges(copy.carries, carried),
        "rewound_context": _split_ranges(copy.set_aside, carried),
        "tags": copy.tags,
        "model_calls": copy.calls,
    }


def _split_ranges(ranges: list[list[int]], carried: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """Return ranges of message ids in the format of an export. A range that spans several sessions is split,
    because each exported range is within one session."""
    carried_ranges: list[dict[str, Any]] = []
    for first, last in ranges:
        within = carried[bisect_left(carried, (first, "")) : bisect_left(carried, (last + 1, ""))]
        for session_id, group in groupby(within, key=lambda pair: pair[1]):
            some = [message_id for message_id, _ in group]
            carried_ranges.append(
                {"session_id": session_id, "first": some[0], "last": some[-1], "count": len(some)}
            )
    return carried_ranges


def _read_keying() -> Keying:
    values = config_file.read()
    settings = {name: values.get(name) for name in Keying.__struct_fields__}
    return Keying(**{name: value for name, value in settings.items() if isinstance(value, bool)})
