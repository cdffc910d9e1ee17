"""`hermes sessions verify | repair | backup | restore | optimize`: the upkeep of the store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Protocol

from hermes.cli.command import DONE, REFUSED, Refused, Words, takes_store, takes_yes
from hermes.cli.io.output import complain, say
from hermes.cli.io.prompts import agree
from hermes.cli.opened_store import existing, is_writable, opened, place, refuse_own
from hermes.text import make_printable


class Report(Protocol):
    @property
    def ok(self) -> bool: ...
    def lines(self) -> list[str]: ...


def define_verify(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, verify)


def define_repair(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, repair)
    parser.add_argument("--check-only", action="store_true", help="say what is wrong and change nothing")
    parser.add_argument("--no-backup", action="store_true", help="do not keep the damaged file")


def define_backup(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, backup)
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="where to (a new name in the home)"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def define_restore(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, restore)
    takes_yes(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup")


def define_optimize(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, optimize)


def verify(arguments: argparse.Namespace) -> int:
    existing(arguments)
    with opened(arguments) as db:
        return _tell(db.verify())


def repair(arguments: argparse.Namespace) -> int:
    from hermes.db.session_db import SessionDB

    path = place(arguments)
    if not Path(f"{path}-wal").exists():  # its log alone may be left, and that is what repair is for
        existing(arguments)
    if arguments.check_only and path.exists() and not is_writable(path):
        complain("it cannot be written, and so not be held alone to try things out: it was only read")
        return verify(arguments)
    report = SessionDB.repair_file(path, check_only=arguments.check_only, keep_backup=not arguments.no_backup)
    return _tell(report)


def backup(arguments: argparse.Namespace) -> int:
    store = existing(arguments)
    if arguments.file is not None:
        refuse_own(store, arguments.file, is_store=True)
    if arguments.file and arguments.file.exists() and not arguments.force:
        raise Refused(f"{arguments.file} exists; choose another name, or replace it with --force")
    with opened(arguments) as db:
        written = db.backup(arguments.file)
    say([f"Backed up to {make_printable(str(written.path))}"])
    return DONE


def restore(arguments: argparse.Namespace) -> int:
    from hermes.db.session_db import SessionDB

    if not arguments.file.is_file():
        raise Refused(f"no such file: {arguments.file}")
    store = place(arguments)
    question = (
        f"Replace the store '{make_printable(str(store))}' with '{make_printable(str(arguments.file))}'?"
    )
    agree(question, yes=arguments.yes)
    SessionDB.restore_file(store, arguments.file)
    say([f"Restored '{make_printable(str(store))}' from '{make_printable(str(arguments.file))}'"])
    return DONE


def optimize(arguments: argparse.Namespace) -> int:
    existing(arguments)
    with opened(arguments) as db:
        say(make_printable(line) for line in db.optimize().lines())
    return DONE


def _tell(report: Report) -> int:
    say(make_printable(line) for line in report.lines())
    return DONE if report.ok else REFUSED
