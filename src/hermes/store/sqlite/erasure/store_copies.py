"""Which files are copies of a store, or may be: told by names that only we give, and else by the first bytes."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import NamedTuple

from hermes.atomic_files import KEY_NOTE, PARTIAL, SIDECARS, clear_partials
from hermes.store.file_walk import find_files
from hermes.store.sqlite.copies.backup import DAMAGED, backup_folder, list_backups
from hermes.store.sqlite.encryption import recognition
from hermes.store.sqlite.wal import file_guard


class Survey(NamedTuple):
    """What lies below the folder of a store."""

    databases: list[Path]
    """Whose they are, their names do not tell."""
    being_written: list[Path]
    """Copies that somebody is making at this moment."""
    complete: bool


def survey(path: Path) -> Survey:
    """Look at every file once. What killed processes left half-made goes on the way."""
    files, open_here, complete = find_files(path.parent)
    for folder in {file.parent for file in files if PARTIAL in file.name}:
        clear_partials(folder)
    own = {*list_backups(path), *find_remnants(path)}
    others = [file for file in files if file not in own and file.exists() and recognition.is_database(file)]
    stores = [file for file in open_here if file_guard.is_open(file) and not file.samefile(path)]
    return Survey(
        [file for file in others if PARTIAL not in file.name] + stores,
        sorted({file for file in (*others, *backup_folder(path).glob(".*")) if file.name.endswith(PARTIAL)}),
        complete,
    )


def find_remnants(path: Path) -> Iterator[Path]:
    """What repairs and restores kept aside or were killed over, and sidecars of backups that are gone."""
    folder, beside = backup_folder(path), path.parent
    yield from folder.glob(f"*{DAMAGED}*")
    for kind in ("damaged-*", "new-*"):
        yield from beside.glob(f"{escape(path.name)}.{kind}")
    for ending in (*SIDECARS, KEY_NOTE):
        for pattern in (f"*.db{ending}", f".*{PARTIAL}{ending}"):
            for file in folder.glob(pattern):
                if not file.with_name(file.name.removesuffix(ending)).exists():
                    yield file
