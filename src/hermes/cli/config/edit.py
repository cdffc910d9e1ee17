"""`hermes config edit`: config.yaml in a person's editor, checked before it takes effect."""

from __future__ import annotations

import argparse
from pathlib import Path

from hermes import audit_log, errors
from hermes.cli.command import DONE, REFUSED, Words
from hermes.cli.io.editor import editor_of_person, run_editor
from hermes.cli.io.output import complain, confirm, say
from hermes.config import config_file
from hermes.text import make_printable

FIRST_LINES = "# Settings of Hermes; `hermes config list` names them all.\n"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=edit)


def edit(_: argparse.Namespace) -> int:
    """The editor works on a copy, which takes the place of the file only if it can be understood."""
    from hermes import home
    from hermes.atomic_files import replace_file

    named = editor_of_person("`hermes config set` does without, or a program in EDITOR")
    file = config_file.get_path().resolve()
    copy = file.with_name(f"{file.name}.edited")
    home.make_private_folder(file.parent)
    before = file.read_bytes() if file.exists() else FIRST_LINES.encode()
    if copy.exists():
        complain(f"going on with what you wrote before, in {copy}")
    else:
        replace_file(copy, before)
    while True:
        run_editor(named, copy)
        problem = _problem(copy)
        if problem is None:
            break
        complain(problem)
        if not confirm("Edit it again?"):
            complain(f"{file} is as it was; what you wrote is in {copy}")
            return REFUSED
    after = copy.read_bytes()
    if after != before:
        replace_file(file, after)
        audit_log.record("config.edited", file=str(file))
    copy.unlink()
    say([f"{make_printable(str(file))} {'is as it was' if after == before else 'is saved'}"])
    return DONE


def _problem(file: Path) -> str | None:
    """What is wrong with settings that were written by hand, in one line."""
    from hermes.config.settings import make_settings
    from hermes.gateway.settings import parse_gateway_settings

    try:
        values = config_file.parse_text(file.read_text(encoding="utf-8-sig"), file)
        settings = make_settings(values, file=str(file))
        parse_gateway_settings(values, file=str(file))
    except (errors.BadConfig, UnicodeDecodeError) as problem:
        return str(problem)
    if settings.warning:
        complain(settings.warning)
    return None
