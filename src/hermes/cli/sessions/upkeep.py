"""`hermes sessions verify | repair | backup | restore | optimize`: maintenance of the store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Protocol

from hermes.cli.command import Words, add_store_option, add_yes_option
from hermes.cli.exit_codes import DONE, REFUSED, Refused
from hermes.cli.io.output import print_error, print_lines
from hermes.cli.io.prompts import require_consent
from hermes.cli.store_access import get_store_path, is_writable, open_store, require_store
from hermes.export.output_file import refuse_store_files
from hermes.text import make_printable


class Report(Protocol):
    @property
    def ok(self) -> bool: ...
    def lines(self) -> list[str]: ...


def define_verify(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, verify)


def define_repair(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, repair)
    parser.add_argument("--check-only", action="store_true", help="show what is wrong, and change nothing")
    parser.add_argument("--no-backup", action="store_true", help="do not keep the damaged file")


def define_backup(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, backup)
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="the new file (default: a new name in the home)"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def define_restore(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, restore)
    add_yes_option(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup")


def define_optimize(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, optimize)


def verify(arguments: argparse.Namespace) -> int:
    require_store(arguments)
    with open_store(arguments) as db:
        return _print_report(db.verify())


def repair(arguments: argparse.Namespace) -> int:
    from hermes.db.session_db import SessionDB
    from hermes.store.engine_choice import has_log

    path = get_store_path(arguments)
    if not has_log(path):  # a write-ahead log without the store file is enough for a repair
        require_store(arguments)
    if arguments.check_only and path.exists() and not is_writable(path):
        print_error("the store cannot be written, so repairs could not be tried; it was only read")
        return verify(arguments)
    report = SessionDB.repair_file(path, check_only=arguments.check_only, keep_backup=not arguments.no_backup)
    code = _print_report(report)
    return REFUSED if report.lost else code


def backup(arguments: argparse.Namespace) -> int:
    store = require_store(arguments)
    if arguments.file is not None:
        refuse_store_files(store, arguments.file, is_store=True)
    if arguments.file and arguments.file.exists() and not arguments.force:
        raise Refused(f"{arguments.file} exists; choose another name, or replace it with --force")
    with open_store(arguments) as db:
        written = db.backup(arguments.file)
    print_lines([f"Backed up to {make_printable(str(written.path))}"])
    return DONE


def restore(arguments: argparse.Namespace) -> int:
    from hermes.db.session_db import SessionDB

    if not arguments.file.is_file():
        raise Refused(f"no such file: {arguments.file}")
    store = get_store_path(arguments)
    question = (
        f"Replace the store '{make_printable(str(store))}' with '{make_printable(str(arguments.file))}'?"
    )
    require_consent(question, yes=arguments.yes)
    SessionDB.restore_file(store, arguments.file)
    print_lines([f"Restored '{make_printable(str(store))}' from '{make_printable(str(arguments.file))}'"])
    return DONE


def optimize(arguments: argparse.Namespace) -> int:
    require_store(arguments)
    with open_store(arguments) as db:
        print_lines(make_printable(line) for line in db.optimize().lines())
    return DONE


def _print_report(report: Report) -> int:
    print_lines(make_printable(line) for line in report.lines())
    return DONE if report.ok else REFUSED
