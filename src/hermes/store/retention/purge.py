"""Purge: removal of every byte of deleted sessions from the store, its files and its copies.

The transaction that deletes the sessions also writes a note about the remaining work: the fingerprints that
identify the sessions in copies, the names of their saved conversations, and the personal files that contain
words from them. The notes are processed by this purge, by the next one, by `optimize` or by maintenance. A
note is deleted only when all its work is done, so that an interrupted purge is completed later.
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
"""The maximum number of bytes that are searched for deleted words: in all files together, and in one file."""
MOST_TOLD = 20
RECORDS = ("sessions", "spool")
"""Folders in which each file belongs to one session. When the session is purged, its files are deleted or
rewritten."""

WORD_RUN = re.compile(r"[^\W_]+(?: [^\W_]+)*")
WORD = re.compile(r"[^\W_]+")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
SHORTEST_RUN, LONGEST_RUN = 16, 60
"""The minimum and maximum length of a run of words, in characters. Shorter runs are not used. Longer runs are
cut to `LONGEST_RUN`."""
WORD_HEAD = 10
"""The number of characters of a text's beginning that are used to look it up. The whole text is compared
afterwards. A single word is used only if it has at least this length."""

KEY = "purging:"
NOTES = "SELECT key, value FROM state_meta WHERE key >= 'purging:' AND key < 'purging;' ORDER BY key"
FORGET = "DELETE FROM state_meta WHERE key = ?"


class Note(NamedTuple):
    """The remaining work of a purge, as stored in the transaction that deleted its sessions."""

    sessions: dict[str, Fingerprint]
    folder: Path
    saved: tuple[str, ...]
    """File names of the sessions' saved conversations."""
    left: tuple[str, ...]
    """Log messages about personal files that contain words of the sessions. These files are not changed."""


class Purge:
    def __init__(self, engine: Engine, sessions_dir: Path | None = None) -> None:
        self._engine, self._home = engine, engine.path.parent.absolute()
        self._folder = (sessions_dir or self._home / "sessions").absolute()
        self._saved: list[str] = []
        self._left: list[str] = []

    # ---------------------------------------------------------------- before and during the deletion

    def scan_files(self, session_ids: Collection[str]) -> None:
        """Find the saved conversations of these sessions, and the personal files in the home that contain words
        of their messages. `write_note` stores the result. Call this before the sessions are deleted."""
        words = MessageWords()
        with self._engine.read() as reader:
            for session_id in session_ids:
                for text in self._engine.texts_of(reader, session_id):
                    words.add(text)
        self._saved = find_saved(self._folder, session_ids)
        self._left = list(self._find_files_with(words)) if words else []

    def write_note(self, writer: Writer, session_ids: Collection[str]) -> None:
        """Store a note about the work that remains after these sessions are deleted. Call this in the
        transaction that deletes the sessions, before their rows are deleted."""
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
            f"{file} contains words of a deleted session and was not changed" for file in holding[:MOST_TOLD]
        )
        if len(holding) > MOST_TOLD:
            yield f"{len(holding) - MOST_TOLD} more files contain words of a deleted session"
        if read > MOST_READ or not complete:
            yield f"there are too many files below {self._home} to search all of them for deleted words"

    # ---------------------------------------------------------------- after the deletion, repeated until done

    def finish(self, named: Collection[str] = ()) -> None:
        """Do the remaining work of all stored notes, including those of earlier purges. Sessions in `named`
        that were deleted without a note are also removed from the copies of the store.

        If some work cannot be done yet, raise StoreBusy after doing the rest. The notes are then kept.
        """
        with self._engine.read() as reader:
            notes = {key: _parse_note(text, self._folder) for key, text in reader.rows(NOTES)}
            deleted: dict[str, Fingerprint | None] = {
                session_id: marks
                for session_id, marks in _merge_sessions(notes.values()).items()
                # A session that matches its fingerprint was restored, so it must not be erased.
                if not marks.is_proof_of(self._engine.fingerprint(reader, session_id))
            }
            deleted |= {
                session_id: None
                for session_id in named
                if session_id not in deleted and not reader.value(EXISTS, session_id)
            }
            # If an id is in use again, the files with its name belong to the new session.
            nameless = [session_id for session_id in deleted if not reader.value(EXISTS, session_id)]
        if not deleted and not notes:
            return
        for folder in {self._home / "sessions", self._folder, *(note.folder for note in notes.values())}:
            remove_files(self._engine, folder, nameless)
        for note in notes.values():
            remove_saved(note.folder, note.saved)
        for line in dict.fromkeys(line for note in notes.values() for line in note.left):
            log.warning("purge of %s session(s) in %s: %s", len(deleted), self._engine.path, line)
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
        except errors.StoreBusy as problem:  # `finish` raises it after the other work
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
    """Return the content of a personal file as bytes, for a search. Return b"" if the file is binary,
    unreadable or too large to search."""
    try:
        if file.stat().st_size > MOST_READ_OF_ONE:
            return b""
        data = sealed.read(file, anywhere=True)
    except (OSError, errors.HermesError):
        return b""
    return b"" if b"\0" in data[:8192] else data


class MessageWords:
    """Recognises texts of certain messages in personal files. The messages are about to be purged.

    Two kinds of text identify a message in any file format: the longest sequence of words in it that are
    separated by single spaces, and single words that mix letters and digits, such as keys and passwords. If a
    file contains such a text, it is taken to contain the message. Shorter phrases occur in every conversation
    and prove nothing.
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
    r"""Return `text` with each JSON escape `\uXXXX` replaced by its character, and each other escape by a
    space. If `\n` stayed in the text, its `n` would be joined to the next word."""
    if "\\" not in text:
        return text
    return ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)
