"""Runs the user's editor on a settings file, or on a private copy of a file that may be encrypted."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from hermes import home
from hermes.cli.exit_codes import Refused

USUAL = "vi"


def find_editor(otherwise: str) -> str:
    """Return the command that starts the user's editor. Raise Refused if no editor is set and there is no
    terminal for the default editor. `otherwise` is the advice at the end of the error."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not named and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(f"no editor is set, and the default ({USUAL}) needs a terminal; {otherwise}")
    return named or USUAL


def run_editor(named: str, file: Path, *, keeps_file: bool = True) -> None:
    """Run the editor on a file. If the editor fails and `keeps_file` is set, the error says that the changes
    are kept in the file."""
    import shlex
    import subprocess

    # Without a terminal, an editor that waits for keys reads the end of input instead of hanging.
    keys = None if sys.stdin.isatty() else subprocess.DEVNULL
    try:
        done = subprocess.run([*shlex.split(named), str(file)], stdin=keys)
    except (OSError, ValueError) as problem:
        raise Refused(f"the editor {named!r} does not start: {problem}; set EDITOR") from problem
    if done.returncode:
        consequence = f"its changes are in {file}" if keeps_file else "nothing was changed"
        raise Refused(f"the editor {named!r} failed ({done.returncode}); {consequence}")


def edit_file(file: Path, folder: Path) -> bool:
    """Let the user edit a file of the home, which may be encrypted. Return whether the file was changed.

    The editor works on a copy in a temporary private folder, where it can also create its own files. The
    temporary folder is removed afterwards. `folder` is the folder whose lock protects writes to the file.
    """
    from hermes.atomic_files import lock_private_folder, replace_file
    from hermes.store.engine_choice import sealed_files
    from hermes.store.sealing.plain_files import EDITING

    named, sealed = find_editor("set EDITOR to a program that works without one"), sealed_files()
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
                raise Refused(f"another program changed {file} meanwhile; your changes are in {copy}")
            home.make_private_folder(file.parent)
            sealed.write(file, after)
    _remove(copy.parent)
    return after != before


def _remove(folder: Path) -> None:
    """Remove the temporary folder `folder` with the edited copy and the files that the editor created beside
    it. The content of the files is overwritten first."""
    import shutil

    from hermes.store.sealing.plain_files import remove_and_wipe

    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            with suppress(OSError):
                remove_and_wipe(file)
    shutil.rmtree(folder, ignore_errors=True)
