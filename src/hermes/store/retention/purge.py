"""Purge: no byte of what is deleted is left in the store, its files and its copies, however often that is cut off.

What is to be done is noted in the transaction that deletes: by what a session is known again in a copy, which saved
conversations are of it, and which files that are a person's own hold words of it. From then on the notes are worked
through, by this purge, by the next one, by `optimize` or by maintenance, and go when everything is done.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.logs import get_logger
from hermes.store.content import decode_document, to_json
from hermes.store.engine import Engine, FileReader, Writer
from hermes.store.file_walk import find_files
from hermes.store.meta import SET
from hermes.store.retention.fingerprints import decode_fingerprint
from hermes.store.retention.session_files import SAVED, find_saved, remove_files, remove_saved
from hermes.store.sessions.sessions import EXISTS
from hermes.store.values import Fingerprint

log = get_logger(__name__)

WAIT_S = 30.0
MOST_READ, MOST_READ_OF_ONE = 100_000_000, 20_000_000
MOST_TOLD = 20
RECORDS = ("sessions", "spool")
"""Folders of files that belong to single sessions, and go or are rewritten with them."""

WORD_RUN = re.compile(r"[^\W_]+(?: [^\W_]+)*")
WORD = re.compile(r"[^\W_]+")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
SHORTEST_RUN, LONGEST_RUN = 16, 60
WORD_HEAD = 10
"""How many characters are looked up before all of it is compared; a single word has at least so many."""

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

    def scan_files(self, session_ids: Collection[str]) -> None:
        """Look through the home for what these sessions say, as long as that is known."""
        words = MessageWords()
        with self._engine.read() as reader:
            for session_id in session_ids:
                for text in self._engine.texts_of(reader, session_id):
                    words.add(text)
        self._saved = find_saved(self._folder, session_ids)
        self._left = list(self._find_files_with(words)) if words else []

    def write_note(self, writer: Writer, session_ids: Collection[str]) -> None:
        """In the transaction that deletes these sessions, before it does."""
        note = {
            "sessions": {
                session_id: self._engine.fingerprint(writer, session_id).encode()
                for session_id in session_ids
            },
            "folder": str(self._folder),
            "saved": self._saved,
            "left": self._left,
        }
        writer.run(SET, KEY + os.urandom(8).hex(), to_json(note))

    def _find_files_with(self, words: MessageWords) -> Iterator[str]:
        holding, read = [], 0
        files, _, complete = find_files(self._home)
        going = {self._folder / SAVED / name for name in self._saved}
        for file in files:
            if file.parent.name in RECORDS or file in going:
                continue
            data = _read_text(file, self._engine.sealed_files())
            read += len(data)
            if read > MOST_READ:
                break
            if words.is_any_in(data):
                holding.append(file.relative_to(self._home))
        yield from (
            f"{file} holds words of it and is yours: it was not touched" for file in holding[:MOST_TOLD]
        )
        if len(holding) > MOST_TOLD:
            yield f"{len(holding) - MOST_TOLD} more files hold words of it"
        if read > MOST_READ or not complete:
            yield f"there are too many files below {self._home} to look through all of them for words of it"

    # ---------------------------------------------------------------- afterwards, as often as need be

    def finish(self, named: Collection[str] = ()) -> None:
        """Do everything that is noted. Of `named` sessions that went without a note, our own copies are cleaned.

        StoreBusy if something could not be done yet: then it stays noted, and all else is done.
        """
        with self._engine.read() as reader:
            notes = {key: _parse_note(text, self._folder) for key, text in reader.rows(NOTES)}
            deleted: dict[str, Fingerprint | None] = {
                session_id: marks
                for session_id, marks in _merge_sessions(notes.values()).items()
                # Otherwise the session was brought back.
                if not marks.is_proof_of(self._engine.fingerprint(reader, session_id))
            }
            deleted |= {
                session_id: None
                for session_id in named
                if session_id not in deleted and not reader.value(EXISTS, session_id)
            }
            # An id may be in use again: then the files of that name are the new session's.
            nameless = [session_id for session_id in deleted if not reader.value(EXISTS, session_id)]
        if not deleted and not notes:
            return
        for folder in {self._home / "sessions", self._folder, *(note.folder for note in notes.values())}:
            remove_files(self._engine, folder, nameless)
        for note in notes.values():
            remove_saved(note.folder, note.saved)
        for line in dict.fromkeys(line for note in notes.values() for line in note.left):
            log.warning("%s: purge of %s sessions: %s", self._engine.path, len(deleted), line)
        held_up = self._erase_from_spool(nameless)
        self._engine.erase_deleted(deleted)
        if held_up is not None:
            raise held_up
        if notes:
            self._engine.write(lambda writer: [writer.run(FORGET, key) for key in notes])

    def _erase_from_spool(self, session_ids: Collection[str]) -> errors.StoreError | None:
        from hermes.store.spool.spool import Spool

        try:
            for session_id in session_ids:
                Spool(self._engine.path).erase(session_id, wait=WAIT_S)
        except errors.StoreBusy as problem:  # told when all else is done
            return problem
        return None


def _parse_note(text: str, folder: Path) -> Note:
    note = decode_document(text)
    sessions = {
        session_id: decode_fingerprint(marks) for session_id, marks in note.get("sessions", {}).items()
    }
    return Note(
        sessions, Path(note.get("folder", folder)), tuple(note.get("saved", ())), tuple(note.get("left", ()))
    )


def _merge_sessions(notes: Iterable[Note]) -> dict[str, Fingerprint]:
    merged: dict[str, Fingerprint] = {}
    for note in notes:
        for session_id, marks in note.sessions.items():
            merged[session_id] = merged.get(session_id, Fingerprint()) | marks
    return merged


def _read_text(file: Path, sealed: FileReader) -> bytes:
    """What a text file holds; nothing of one that is none, or too large to be looked through."""
    try:
        if file.stat().st_size > MOST_READ_OF_ONE:
            return b""
        data = sealed.read(file, anywhere=True)
    except (OSError, errors.HermesError):
        return b""
    return b"" if b"\0" in data[:8192] else data


class MessageWords:
    """Recognise the words of messages in files that people keep.

    A file holds a message if it holds what every format writes alike: the longest run of its words with only single
    spaces between them, or a word that mixes letters and digits, as keys and passwords do. Shorter phrases occur in
    every conversation and prove nothing.
    """

    def __init__(self) -> None:
        self._by_head: dict[str, set[str]] = defaultdict(set)

    def add(self, text: str) -> None:
        text = _decode_escapes(text)
        run = max(WORD_RUN.findall(text), key=len, default="")
        keys = [
            word for word in WORD.findall(text) if len(word) >= WORD_HEAD and _has_letters_and_digits(word)
        ]
        for words in [*keys, *([run] if len(run) >= SHORTEST_RUN else [])]:
            self._by_head[words[:WORD_HEAD]].add(words[:LONGEST_RUN])

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def is_any_in(self, data: bytes) -> bool:
        text = _decode_escapes(data.decode("utf-8", "replace"))
        for word in WORD.finditer(text):
            at = word.start()
            candidates = self._by_head.get(text[at : at + WORD_HEAD], ())
            if any(text.startswith(candidate, at) for candidate in candidates):
                return True
        return False


def _has_letters_and_digits(word: str) -> bool:
    return not word.isalpha() and not word.isdecimal()


def _decode_escapes(text: str) -> str:
    """JSON's escapes as what they stand for: `\\n` would make one word of the `n` and what follows it."""
    if "\\" not in text:
        return text
    return ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)
