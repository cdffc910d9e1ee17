"""The keys of the sealed files beside a store. They are found in the same places as the key of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hermes.store.sealing.sealed_files import key_id
from hermes.store.sqlite.encryption import encryption


class FileKeys:
    def __init__(self, store: Path) -> None:
        self._store = store

    def key_for_writing(self) -> bytes | None:
        if not encryption.is_encrypted(self._store):
            return None
        key = encryption.find_key(self._store)
        # The store does not exist yet. It will be created with this key.
        if key is None and not os.path.exists(self._store):
            from hermes.store.sqlite.encryption import store_keys

            configured = store_keys.find_configured_key()
            return configured.key if configured is not None else None
        return key

    def key_with_id(self, identifier: str, file: Path) -> bytes:
        for key in encryption.list_known_keys():
            if key_id(key) == identifier:
                return key
        refused = []
        for key, where in self._candidates():
            if key_id(key) == identifier:
                return key
            refused.append(where)
        account = os.path.realpath(self._store)
        raise encryption.wrong_key_error(file, refused) if refused else encryption.no_key_error(file, account)

    def _candidates(self) -> Iterator[tuple[bytes, str]]:
        """Yield the key of the store, then every other key that can be found (see `store_keys.candidates`). Each key
        comes with a text that says where it was found.

        The other keys are needed if the store was decrypted or got a new key after a file beside it was sealed.
        """
        from hermes.store.sqlite.encryption import store_keys

        if (key := encryption.find_key(self._store)) is not None:
            yield key, str(self._store)
        note = encryption.read_note(self._store)
        account = os.path.realpath(self._store) if note is None else note.account
        for found in store_keys.candidates(account, None if note is None else note.key_file):
            yield found.key, found.where
