"""The files that belong to a store. Nothing that is written for a user may replace one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hermes.atomic_files import BACKUPS, DAMAGE_MARK, KEY_NOTE, LOCK
from hermes.config import config_file, dotenv
from hermes.store.spool.spool import FOLDER
from hermes.store.sqlite.encryption import encryption
from hermes.store.sqlite.wal.file_identity import identity_of
from hermes.store.sqlite.wal.sidecars import SIDECARS


class StoreFiles:
    """The names and identities of the files that belong to one store, as they were when this object was created.

    The files are not opened: closing the live database file would drop SQLite's locks.
    """

    def __init__(self, store: Path) -> None:
        # If the store is a symbolic link, SQLite's files are beside its target, and ours are beside the link.
        beside = os.path.join(os.path.realpath(store.parent), store.name)
        self._bases = (os.path.realpath(store), beside)
        self._names: dict[str, str] = {}
        self._numbers: dict[tuple[int, int], str] = {}
        for name, role in self._each(store):
            self._names.setdefault(os.path.realpath(name), role)
            if (number := identity_of(name)) is not None:
                self._numbers.setdefault(number, role)

    def describe_role(self, file: Path, *, is_copy: bool = False) -> str | None:
        """Describe the role of `file` in the store, or return None if it does not belong to the store.

        The file is recognised through any link. A name that belongs to the store is recognised even before
        the file exists. `is_copy` means that the file is a copy of a store. Such a file may be in the backup
        folder.
        """
        real, number = os.path.realpath(file), identity_of(file)
        role = self._names.get(real) or (None if number is None else self._numbers.get(number))
        return role or self._describe_place(real, is_copy)

    def _describe_place(self, real: str, is_copy: bool) -> str | None:
        for base in self._bases:
            if real.startswith(f"{base}{DAMAGE_MARK}-"):
                return "a copy of the store that a repair kept"
            if not is_copy and _is_inside(real, f"{base}{BACKUPS}"):
                return "among the store's backups"
            if _is_inside(real, os.path.join(os.path.dirname(base), FOLDER)):
                return "in the spool of the store"
        return None

    def _each(self, store: Path) -> Iterator[tuple[str, str]]:
        for base in self._bases:
            yield base, "the store itself"
            for ending in (*SIDECARS, LOCK, KEY_NOTE, DAMAGE_MARK):
                yield f"{base}{ending}", "a part of the store"
        note = encryption.read_note(store)
        if note is not None and note.key_file is not None:
            yield note.key_file, "the key of the store"
        yield str(config_file.get_path()), "your settings file"
        yield str(dotenv.get_path()), "the file with your keys"


def _is_inside(real: str, folder: str) -> bool:
    return Path(real).is_relative_to(os.path.realpath(folder))
