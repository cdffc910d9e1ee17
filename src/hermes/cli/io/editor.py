"""A person's editor: on a file of settings, or on a private copy of a file that may be encrypted with the store."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from hermes import home
from hermes.cli.exit_codes import Refused

USUAL = "vi"


def find_editor(otherwise: str) -> str:
    """The editor that a person wants; refused, with what to do `otherwise`, where it could not be seen."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not named and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(f"{USUAL} needs a terminal; {otherwise}")
    return named or USUAL


def run_editor(named: str, file: Path, *, keeps_file: bool = True) -> None:
    """Let a person edit the file. `keeps_file`: what a failing editor left stays there."""
    import shlex
    import subprocess

    # Without a terminal nobody types: a program that waits for keys gets the end of them, and does not hang.
    keys = None if sys.stdin.isatty() else subprocess.DEVNULL
    try:
        done = subprocess.run([*shlex.split(named), str(file)], stdin=keys)
    except (OSError, ValueError) as problem:
        raise Refused(f"the editor {named!r} does not start: {problem}; set EDITOR") from problem
    if done.returncode:
        consequence = f"what it left is in {file}" if keeps_file else "nothing was changed"
        raise Refused(f"the editor {named!r} failed ({done.returncode}); {consequence}")


def edit_file(file: Path, folder: Path) -> bool:
    """Let a person edit a file of the home, which may be sealed; whether it was changed.

    The editor gets a copy in a private folder, where its own files go, too; all of that is removed afterwards. `folder`
    is the one whose lock is held by those who write the file.
    """
    from hermes.atomic_files import lock_private_folder, replace_file
    from hermes.store.engine_choice import sealed_files
    from hermes.store.sealing.plain_files import EDITING

    named, sealed = find_editor("set EDITOR to a program that does without"), sealed_files()
    before = sealed.read(file) if file.exists() else b""
    copy = home.get_hermes_home() / f"{EDITING}{os.urandom(6).hex()}" / file.name
    home.make_private_folder(copy.parent)
    try:
        replace_file(copy, before)
        run_editor(named, copy, keeps_file=False)
        after = copy.read_bytes() if copy.exists() else before
    except BaseException:
        _remove(copy.parent)
        raise
    if after != before:
        with lock_private_folder(folder):
            if (sealed.read(file) if file.exists() else b"") != before:
                raise Refused(f"{file} was changed meanwhile, and is as it was; what you wrote is in {copy}")
            home.make_private_folder(file.parent)
            sealed.write(file, after)
    _remove(copy.parent)
    return after != before


def _remove(folder: Path) -> None:
    """Remove the copy and what the editor put beside it."""
    import shutil

    from hermes.store.sealing.plain_files import remove_and_wipe

    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            with suppress(OSError):
                remove_and_wipe(file)
    shutil.rmtree(folder, ignore_errors=True)
