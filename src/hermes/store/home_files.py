"""The files of a home that are sealed with an encrypted store: sealed and opened again, all of them.

Each file is replaced whole or not at all. A kill leaves every file plain or sealed, both of which are read, and the
next call goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.partial import LOCK, PARTIAL, alone_in, clear_partials, exclusive
from hermes.store.files_below import files_below
from hermes.store.sealed_files import Form, SealedFiles

HISTORY = "chat_history"
INCOMING = "gateway/incoming"
SEALED_FOLDERS = ("memories", "skills", "people", INCOMING)
LOCKED_FOLDERS = ("memories", "skills")
"""Whoever writes below one of these holds its lock."""

Act = Callable[[Path, Form], tuple[bool, str | None]]
"""Does something to a file; whether that changed it, and what a person has to know."""


class Changed(NamedTuple):
    files: tuple[Path, ...]
    left: tuple[str, ...]
    """What was not changed, or has to be known, a line each."""


def seal_files(sealed: SealedFiles) -> Changed:
    """Seal every file of the home that holds people's words."""

    def seal(file: Path, form: Form) -> tuple[bool, str | None]:
        return sealed.seal_in_place(file, form)

    return _each(sealed.root, seal, "not sealed")


def open_files(sealed: SealedFiles) -> Changed:
    """Make every sealed file of the home plain again."""

    def make_plain(file: Path, _: Form) -> tuple[bool, str | None]:
        return sealed.open_in_place(file), None

    return _each(sealed.root, make_plain, "still sealed")


def _each(root: Path, act: Act, failed: str) -> Changed:
    changed: list[Path] = []
    left: list[str] = []
    found, complete = _sealable(root)
    for folder, files in groupby(found, lambda file: _lock_folder(root, file)):
        try:
            with _alone(root, folder):
                for file in files:
                    _change(file, root, act, failed, changed, left)
        except (errors.HermesError, OSError) as problem:  # its lock is not to be had
            left.append(f"{failed}: {folder or root} ({problem})")
    if not complete:
        left.append(f"{failed}: there are too many files below {root} to look at all of them; run it again")
    return Changed(tuple(changed), tuple(left))


def _change(file: Path, root: Path, act: Act, failed: str, changed: list[Path], left: list[str]) -> None:
    try:
        done, remark = act(file, "log" if file == root / HISTORY else "file")
    except FileNotFoundError:  # it has gone meanwhile
        return
    except (errors.HermesError, OSError) as problem:
        left.append(f"{failed}: {file} ({problem})")
        return
    if done:
        changed.append(file)
    if remark is not None:
        left.append(f"{file} {remark}")


def _sealable(root: Path) -> tuple[list[Path], bool]:
    """The files that are sealed beside an encrypted store, those of one folder together."""
    found = [root / HISTORY] if (root / HISTORY).is_file() and not (root / HISTORY).is_symlink() else []
    complete = True
    for name in SEALED_FOLDERS:
        if (root / name).is_symlink():
            continue
        below = files_below(root / name)
        complete = complete and below.complete
        every = [*below.files, *below.open_here]  # no database is among them
        for folder in {file.parent for file in every}:
            clear_partials(folder)
        wanted = [
            file
            for file in every
            if file.name != LOCK and not file.name.endswith(PARTIAL) and not is_program(root, file)
        ]
        found += sorted(wanted, key=lambda file: (str(_lock_folder(root, file)), file))
    return found, complete


def _lock_folder(root: Path, file: Path) -> Path | None:
    """The folder whose lock its writers hold: `memories`, `skills`, or those of a person."""
    parts = file.relative_to(root).parts[:-1]
    start = 2 if parts[:1] == ("people",) else 0
    if len(parts) > start and parts[start] in LOCKED_FOLDERS:
        return root.joinpath(*parts[: start + 1])
    return None


def _alone(root: Path, folder: Path | None) -> AbstractContextManager[None]:
    if folder is not None:
        return alone_in(folder)
    return exclusive(root) if root.is_dir() else nullcontext()


def is_program(root: Path, file: Path) -> bool:
    """A program of a skill: a shell has to be able to start it."""
    try:
        return "skills" in file.relative_to(root).parts and bool(file.stat().st_mode & 0o111)
    except OSError:
        return False
