"""`hermes sessions`: the list of conversations, and the upkeep of the store that holds them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hermes import clock, home
from hermes.cli.command import DONE, REFUSED, Refused, commands_of, plain_text, row_count
from hermes.cli.output import confirm, say, say_json
from hermes.cli.table import Column, table
from hermes.text import printable

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB

HIDDEN_SOURCES = ("batch", "cron", "tool")
"""What runs without a person; the footer says how many there are."""

UNTITLED = "—"
TITLED_COLUMNS = (Column("Title", 32, 30), Column("Preview", 40, 38), Column("Last Active", 13), Column("ID"))
TITLED_RULE = 110
PLAIN_COLUMNS = (
    Column("Preview", 50, 48),
    Column("Last Active", 13),
    Column("Src", 6, 4, marks_cut=False),
    Column("ID"),
)
PLAIN_RULE = 95

JSON_FIELDS = (
    "id", "title", "preview", "source", "model", "message_count",
    "started_at", "last_active", "ended_at", "end_reason",
)  # fmt: skip


class Report(Protocol):
    @property
    def ok(self) -> bool: ...
    def lines(self) -> list[str]: ...


def add_commands(parser: argparse.ArgumentParser) -> None:
    command = commands_of(parser)

    listing = command("list", list_sessions, "show the conversations, newest activity first")
    listing.add_argument(
        "--source", type=plain_text, metavar="S", help="only those of one source, such as telegram"
    )
    listing.add_argument("--limit", type=row_count, default=20, metavar="N", help="at most this many (20)")
    listing.add_argument("--all", action="store_true", help="also those that ran without a person")
    listing.add_argument("--json", action="store_true", help="print JSON for programs")

    command("verify", verify, "check that everything stored is whole")

    repairing = command("repair", repair, "save what can be saved of a damaged store into a new file")
    repairing.add_argument("--check-only", action="store_true", help="say what is wrong and change nothing")
    repairing.add_argument("--no-backup", action="store_true", help="do not keep the damaged file")

    saving = command("backup", backup, "write a verified copy of the store")
    saving.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="where to (a new name in the home)"
    )
    saving.add_argument("--force", action="store_true", help="replace FILE if it exists")

    restoring = command("restore", restore, "put a backup in the place of the store")
    restoring.add_argument("file", type=Path, metavar="FILE", help="the backup")
    restoring.add_argument("-y", "--yes", action="store_true", help="do not ask")

    command("optimize", optimize, "give unused space back and tidy the search index")


def list_sessions(arguments: argparse.Namespace) -> int:
    hide = [] if arguments.source or arguments.all else list(HIDDEN_SOURCES)
    with _store(arguments) as db:
        rows: list[dict[str, Any]] = db.list_sessions_rich(
            source=arguments.source,
            exclude_sources=hide,
            limit=arguments.limit,
            order_by_last_active=True,
        )
        hidden = {source: db.session_count(source=source) for source in hide}
    if arguments.json:
        say_json([{field: row.get(field) for field in JSON_FIELDS} for row in rows])
        return DONE
    say(_rows_as_table(rows) if rows else ["No sessions found."])
    say(_footer(hidden))
    return DONE


def _rows_as_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    now = clock.now()
    if any(row["title"] for row in rows):
        cells = [
            (row["title"] or UNTITLED, row["preview"], clock.relative(row["last_active"], now), row["id"])
            for row in rows
        ]
        return table(TITLED_COLUMNS, cells, TITLED_RULE)
    cells = [
        (row["preview"], clock.relative(row["last_active"], now), row["source"], row["id"]) for row in rows
    ]
    return table(PLAIN_COLUMNS, cells, PLAIN_RULE)


def _footer(hidden: dict[str, int]) -> list[str]:
    counted = ", ".join(f"{count} {source}" for source, count in hidden.items() if count)
    return [f"Not shown: {counted} (--all shows them)."] if counted else []


def verify(arguments: argparse.Namespace) -> int:
    _require_store(arguments)
    with _store(arguments) as db:
        return _tell(db.verify())


def repair(arguments: argparse.Namespace) -> int:
    from hermes.sessiondb import SessionDB

    path = _place(arguments)
    if not Path(f"{path}-wal").exists():  # its log alone may be left, and that is what repair is for
        _require_store(arguments)
    report = SessionDB.repair_file(path, check_only=arguments.check_only, keep_backup=not arguments.no_backup)
    return _tell(report)


def backup(arguments: argparse.Namespace) -> int:
    _require_store(arguments)
    if arguments.file and arguments.file.exists() and not arguments.force:
        raise Refused(f"{arguments.file} exists; choose another name, or replace it with --force")
    with _store(arguments) as db:
        written = db.backup(arguments.file)
    say([f"Backed up to {printable(str(written.path))}"])
    return DONE


def restore(arguments: argparse.Namespace) -> int:
    from hermes.sessiondb import SessionDB

    if not arguments.file.is_file():
        raise Refused(f"no such file: {arguments.file}")
    store = _place(arguments)
    question = f"Replace the store '{printable(str(store))}' with '{printable(str(arguments.file))}'?"
    if not arguments.yes and not confirm(question):
        say(["Cancelled."])
        return REFUSED
    SessionDB.restore_file(store, arguments.file)
    say([f"Restored '{printable(str(store))}' from '{printable(str(arguments.file))}'"])
    return DONE


def optimize(arguments: argparse.Namespace) -> int:
    _require_store(arguments)
    with _store(arguments) as db:
        say(printable(line) for line in db.optimize().lines())
    return DONE


@contextmanager
def _store(arguments: argparse.Namespace) -> Iterator[SessionDB]:
    from hermes.sessiondb import SessionDB

    db = SessionDB(_place(arguments))
    try:
        yield db
    finally:
        db.close()


def _place(arguments: argparse.Namespace) -> Path:
    return arguments.store or home.default_db_path()


def _require_store(arguments: argparse.Namespace) -> Path:
    """Upkeep of a store that does not exist is a mistake, not a reason to make one."""
    path = _place(arguments)
    if not path.exists():
        raise Refused(f"there is no store at {path}")
    return path


def _tell(report: Report) -> int:
    say(printable(line) for line in report.lines())
    return DONE if report.ok else REFUSED
