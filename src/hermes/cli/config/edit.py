"""`hermes config edit`: edit config.yaml in the user's editor and check it before it takes effect."""

from __future__ import annotations

import argparse
from pathlib import Path

from hermes import audit_log, errors
from hermes.cli.command import Words
from hermes.cli.exit_codes import DONE, REFUSED
from hermes.cli.io.editor import find_editor, run_editor
from hermes.cli.io.output import confirm, print_error, print_lines
from hermes.config import config_file
from hermes.text import make_printable

FIRST_LINES = "# Settings of Hermes; `hermes config list` names them all.\n"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=edit_config)


def edit_config(_: argparse.Namespace) -> int:
    """Let the user edit a copy of config.yaml. The copy replaces config.yaml only if its settings are valid.
    Return the exit code."""
    from hermes import home
    from hermes.atomic_files import replace_file

    named = find_editor("use `hermes config set`, or set EDITOR to a program that works without one")
    file = config_file.get_path().resolve()
    copy = file.with_name(f"{file.name}.edited")
    home.make_private_folder(file.parent)
    before = file.read_bytes() if file.exists() else FIRST_LINES.encode()
    if copy.exists():
        print_error(f"continuing with your earlier changes in {copy}")
    else:
        replace_file(copy, before)
    while True:
        run_editor(named, copy)
        problem = _find_problem(copy)
        if problem is None:
            break
        print_error(problem)
        if not confirm("Edit it again?"):
            print_error(f"{file} is unchanged; your changes are in {copy}")
            return REFUSED
    after = copy.read_bytes()
    if after != before:
        replace_file(file, after)
        audit_log.record("config.edited", file=str(file))
    copy.unlink()
    print_lines([f"{make_printable(str(file))} {'is unchanged' if after == before else 'is saved'}"])
    return DONE


def _find_problem(file: Path) -> str | None:
    """Return a one-line description of what is wrong with the settings in `file`, the copy of config.yaml that
    the user edited. Return None if they are valid."""
    from hermes.config.settings import make_settings
    from hermes.gateway.settings import parse_gateway_settings

    try:
        values = config_file.parse_text(file.read_text(encoding="utf-8-sig"), file)
        settings = make_settings(values, file=str(file))
        parse_gateway_settings(values, file=str(file))
    except (errors.BadConfig, UnicodeDecodeError) as problem:
        return str(problem)
    if settings.warning:
        print_error(settings.warning)
    return None
