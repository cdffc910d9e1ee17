"""Purge: no byte of what is deleted is left in the store, its files and its copies, however often that is cut off.

What is to be done is noted in the transaction that deletes: by what a session is known again in a copy, which saved
conversations are of it, and which files that are a person's own hold words of it. From then on the notes are worked
through, by this purge, by the next one, by `optimize` or by maintenance, and go when everything is done.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.logs import get_logger
from hermes.store.content import from_document, to_json
from hermes.store.engine import Engine, Writer
from hermes.store.file_walk import files_below
from hermes.store.meta import SET
from hermes.store.retention.fingerprints import Fingerprint, from_told
from hermes.store.retention.session_files import SAVED, remove_files, remove_saved, saved_of
from hermes.store.retention.traces import Words
from hermes.store.sealing.sealed_files import SealedFiles
from hermes.store.sessions.sessions import EXISTS

log = get_logger(__name__)

WAIT_S = 30.0
MOST_READ, MOST_READ_OF_ONE = 100_000_000, 20_000_000
MOST_TOLD = 20
RECORDS = ("sessions", "spool")
"""Folders of files that belong to single sessions, and go or are rewritten with them."""

KEY = "purging:"
NOTES = "SELECT key, value FROM state_meta WHERE key >= 'purging:' AND key < 'purging;' ORDER BY key"
FORGET = "DELETE FROM state_meta WHERE key = ?"


class Note(NamedTuple):
    """What is to be done about sessions that are gone."""

    sessions: dict[str, Fingerprint]
    folder: Path
    saved: tuple[str, ...]
    """Names of saved conversations that are theirs."""
    left: tuple[str, ...]
    """Which files hold words of them and are a person's own, in words."""


class Purge:
    def __init__(self, engine: Engine, sessions_dir: Path | None = None) -> None:
        self._engine, self._home = engine, engine.path.parent.absolute()
        self._folder = (sessions_dir or self._home / "sessions").absolute()
        self._saved: list[str] = []
        self._left: list[str] = []

    # ---------------------------------------------------------------- before and while the rows go

    def look(self, session_ids: Collection[str]) -> None:
        """Look through the home for what these sessions say, as long as that is known."""
        words = Words()
        with self._engine.read() as reader:
            for session_id in session_ids:
                for text in self._engine.texts_of(reader, session_id):
                    words.add(text)
        self._saved = saved_of(self._folder, session_ids)
        self._left = list(self._holding(words)) if words else []

    def note(self, writer: Writer, session_ids: Collection[str]) -> None:
        """In the transaction that deletes these sessions, before it does."""
        told = {
            "sessions": {one: self._engine.fingerprint(writer, one).told() for one in session_ids},
            "folder": str(self._folder),
            "saved": self._saved,
            "left": self._left,
        }
        writer.run(SET, KEY + os.urandom(8).hex(), to_json(told))

    def _holding(self, words: Words) -> Iterator[str]:
        found, read = [], 0
        files, _, complete = files_below(self._home)
        going = {self._folder / SAVED / name for name in self._saved}
        for file in files:
            if file.parent.name in RECORDS or file in going:
                continue
            data = _text_of(file, self._engine.sealed_files())
            read += len(data)
            if read > MOST_READ:
                break
            if words.are_in(data):
                found.append(file.relative_to(self._home))
        yield from (
            f"{file} holds words of it and is yours: it was not touched" for file in found[:MOST_TOLD]
        )
        if len(found) > MOST_TOLD:
            yield f"{len(found) - MOST_TOLD} more files hold words of it"
        if read > MOST_READ or not complete:
            yield f"there are too many files below {self._home} to look through all of them for words of it"

    # ---------------------------------------------------------------- afterwards, as often as need be

    def finish(self, named: Collection[str] = ()) -> None:
        """Do everything that is noted. Of `named` sessions that went without a note, our own copies are cleaned.

        StoreBusy if something could not be done yet: then it stays noted, and all else is done.
        """
        with self._engine.read() as reader:
            notes = {key: _note(text, self._folder) for key, text in reader.rows(NOTES)}
            gone: dict[str, Fingerprint | None] = {
                one: marks
                for one, marks in _sessions_of(notes.values()).items()
                if not marks.proves(self._engine.fingerprint(reader, one))  # or somebody has brought it back
            }
            gone |= {one: None for one in named if one not in gone and not reader.value(EXISTS, one)}
            # An id may be in use again: then the files of that name are the new session's.
            nameless = [one for one in gone if not reader.value(EXISTS, one)]
        if not gone and not notes:
            return
        for folder in {self._home / "sessions", self._folder, *(note.folder for note in notes.values())}:
            remove_files(self._engine, folder, nameless)
        for note in notes.values():
            remove_saved(note.folder, note.saved)
        for line in dict.fromkeys(line for note in notes.values() for line in note.left):
            log.warning("%s: purge of %s sessions: %s", self._engine.path, len(gone), line)
        held_up = self._erase_from_spool(nameless)
        self._engine.erase_deleted(gone)
        if held_up is not None:
            raise held_up
        if notes:
            self._engine.write(lambda writer: [writer.run(FORGET, key) for key in notes])

    def _erase_from_spool(self, gone: Collection[str]) -> errors.StoreError | None:
        from hermes.store.spool.spool import Spool

        try:
            for session_id in gone:
                Spool(self._engine.path).erase(session_id, wait=WAIT_S)
        except errors.StoreBusy as problem:  # told when all else is done
            return problem
        return None


def _note(text: str, folder: Path) -> Note:
    told = from_document(text)
    sessions = {one: from_told(marks) for one, marks in told.get("sessions", {}).items()}
    return Note(
        sessions, Path(told.get("folder", folder)), tuple(told.get("saved", ())), tuple(told.get("left", ()))
    )


def _sessions_of(notes: Iterable[Note]) -> dict[str, Fingerprint]:
    found: dict[str, Fingerprint] = {}
    for note in notes:
        for session_id, marks in note.sessions.items():
            found[session_id] = found.get(session_id, Fingerprint()) | marks
    return found


def _text_of(file: Path, sealed: SealedFiles) -> bytes:
    """What a text file holds; nothing of one that is none, or too large to be looked through."""
    try:
        if file.stat().st_size > MOST_READ_OF_ONE:
            return b""
        data = sealed.read(file, anywhere=True)
    except (OSError, errors.HermesError):
        return b""
    return b"" if b"\0" in data[:8192] else data
