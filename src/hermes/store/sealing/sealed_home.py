"""Seals and opens all files of a home that are encrypted together with the store.

Each file is replaced completely or not at all. After a crash, every file is either plain or sealed, and can
be read in both cases. The next call continues with the remaining files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.atomic_files import LOCK, PARTIAL, clear_partials, lock_folder, lock_private_folder
from hermes.store.file_walk import PROGRAMS
from hermes.store.sealing.sealed_files import Form, SealedFiles, is_sealed_file

HISTORY = "chat_history"
INCOMING = "gateway/incoming"
SEALED_FOLDERS = ("memories", "skills", "people", INCOMING, "sessions/edits")
"""The folders of a home whose files are encrypted if the store is."""
LOCKED_FOLDERS = ("memories", "skills")
"""Folders with a lock. A process that writes below such a folder holds the folder's lock."""

Act = Callable[[Path, Form], tuple[bool, str | None]]
"""Processes one file. Returns whether the file changed, and a note for the person or None."""


class Changed(NamedTuple):
    files: tuple[Path, ...]
    left: tuple[str, ...]
    """Notes, one line each: files that were not changed, with the reason, and other remarks."""


def seal_files(sealed: SealedFiles) -> Changed:
    """Seal every file of the home that can contain text of conversations."""

    def seal(file: Path, form: Form) -> tuple[bool, str | None]:
        return sealed.seal_in_place(file, form)

    done = _change_each(sealed.root, seal, "not sealed")
    links = [
        f"not sealed: {link} (a symbolic link; its target is not sealed)" for link in find_links(sealed.root)
    ]
    return Changed(done.files, (*done.left, *links))


def open_files(sealed: SealedFiles) -> Changed:
    """Decrypt every sealed file of the home."""

    def make_plain(file: Path, _: Form) -> tuple[bool, str | None]:
        return sealed.open_in_place(file), None

    return _change_each(sealed.root, make_plain, "still sealed")


def find_broken_files(sealed: SealedFiles) -> list[str]:
    """Return one line of text for each sealed file of the home that is damaged or cannot be read. Nothing is
    changed."""
    wrong = []
    for file in _list_entries(sealed.root, link=False):
        try:
            if is_sealed_file(file):
                sealed.read(file)
                sealed.read_opened(file)
        except (errors.HermesError, OSError) as problem:
            wrong.append(str(problem))
    return wrong


def find_links(root: Path) -> list[Path]:
    """Return the symbolic links in those folders of the home whose files are sealed. The target of such a link
    is read, but not sealed."""
    return _list_entries(root, link=True)


def _change_each(root: Path, act: Act, failed: str) -> Changed:
    changed: list[Path] = []
    left: list[str] = []
    entries = _list_entries(root, link=False)
    for folder in {file.parent for file in entries} - {root}:
        clear_partials(folder)
    files_to_change = [file for file in entries if not is_program(root, file) or is_sealed_file(file)]
    for locked, files in groupby(files_to_change, lambda file: _lock_folder(root, file)):
        try:
            with _lock_alone(root, locked):
                for file in files:
                    _change_file(file, root, act, failed, changed, left)
        except (errors.HermesError, OSError) as problem:  # the lock is not available
            left.append(f"{failed}: {root if locked is None else locked} ({problem})")
    return Changed(tuple(changed), tuple(left))


def _change_file(file: Path, root: Path, act: Act, failed: str, changed: list[Path], left: list[str]) -> None:
    try:
        done, remark = act(file, "log" if file == root / HISTORY else "file")
    except FileNotFoundError:  # removed since it was listed
        return
    except (errors.HermesError, OSError) as problem:
        left.append(f"{failed}: {file} ({problem})")
        return
    if done:
        changed.append(file)
    if remark is not None:
        left.append(f"{file} {remark}")


def _list_entries(root: Path, *, link: bool) -> list[Path]:
    """Return the files in those folders of the home whose files are sealed. With `link`, return the symbolic
    links in these folders instead. Paths that need the same lock are adjacent."""
    places = [root / name for name in (HISTORY, *SEALED_FOLDERS)]
    paths = [place for place in places if place.is_symlink() or place.is_file()]
    for place in places:
        for here, folders, names in os.walk(place) if not place.is_symlink() else ():
            linked = [name for name in folders if Path(here, name).is_symlink()]
            folders[:] = [name for name in folders if name not in PROGRAMS]
            paths += [Path(here, name) for name in (*names, *linked)]
    entries = [
        file
        for file in paths
        if file.is_symlink() == link
        and (link or file.is_file())
        and file.name != LOCK
        and not file.name.endswith(PARTIAL)
    ]
    return sorted(entries, key=lambda file: (str(_lock_folder(root, file) or ""), file))


def _lock_folder(root: Path, file: Path) -> Path | None:
    """Return the folder whose lock must be held to write `file`: the folder `memories` or `skills` of the
    home or of a person. Return None if the file is in neither."""
    parts = file.relative_to(root).parts[:-1]
    start = 2 if parts[:1] == ("people",) else 0
    if len(parts) > start and parts[start] in LOCKED_FOLDERS:
        return root.joinpath(*parts[: start + 1])
    return None


def _lock_alone(root: Path, folder: Path | None) -> AbstractContextManager[None]:
    if folder is not None:
        return lock_private_folder(folder)
    return lock_folder(root) if root.is_dir() else nullcontext()


def is_program(root: Path, file: Path) -> bool:
    """Return whether a file is a program of a skill. Programs stay plain, because a shell must be able to
    start them."""
    try:
        return "skills" in file.relative_to(root).parts and bool(file.stat().st_mode & 0o111)
    except OSError:
        return False
