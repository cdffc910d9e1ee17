"""Transcripts: a copy of each conversation in `sessions/<id>.jsonl`, written from the store.

Files are append-only. The state that a file describes is compared with the store, and the difference is appended.
After a crash, a torn line or a lost file, the next comparison writes the missing lines. Several processes may write.
Each process locks the file before it reads the store, so that no process appends an outdated state.

`.transcripts.json` in the same folder is the marks file. It records for each session when its file last agreed with
the store, so that the program need not read all files when it starts. It is used only if it belongs to this store.
Without it, every file is compared.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import errors, home
from hermes.append_files import lock_descriptor
from hermes.atomic_files import replace_file
from hermes.clock import make_uid
from hermes.gateway.mirror.transcript_lines import (
    DELETED,
    Difference,
    Object,
    TranscriptState,
    compute_difference,
    encode_lines,
    make_event,
    make_message,
)
from hermes.logs import get_logger
from hermes.store.engine_choice import is_encrypted

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

log = get_logger(__name__)

GATEWAY, ALL, OFF = "gateway", "all", "off"
AT_ONCE = 500
"""Maximum number of rows per query."""
MESSAGES_AT_ONCE = 50
REMEMBERED = 128
"""Number of files whose state is cached, without message contents."""
NEW_EVERY_S, ALL_EVERY_S, LONGEST_PAUSE_S = 1.0, 30.0, 10.0
SHARE = 50
"""After a comparison, the pause is `SHARE` times its processor time, so that comparisons take at most about one
fiftieth of one processor. New messages are written after ten seconds at the latest."""
MARKS_FILE = ".transcripts.json"
STORE_KEY = "transcripts:store"
"""Metadata key of a random id of the store. If the marks file has another id, the store was replaced. In that case,
sessions that are missing from the new store are not marked as deleted."""


def choose_transcripts(setting: str | None, store: Path) -> str:
    """Return which transcripts must be written for the store file `store`: a value of the setting
    `sessions.transcripts`. `setting` is the configured value, or None. If it is None, no transcripts are written if
    the store is encrypted, otherwise those of gateway sessions."""
    return setting or (OFF if is_encrypted(store) else GATEWAY)


class _FileState(NamedTuple):
    copy: TranscriptState
    inode: int
    size: int


class Transcripts:
    def __init__(self, db: SessionDB, folder: Path, which: str = GATEWAY) -> None:
        self._db, self._folder, self._everybody = db, folder, which == ALL
        self._off = which == OFF
        self._copies: OrderedDict[str, _FileState] = OrderedDict()
        self._marks: Marks | None = None
        self._after, self._cost = 0, 0.0
        self._alone = threading.Lock()

    # ---------------------------------------------------------------- when

    async def follow(self, stop: asyncio.Event) -> None:
        """Write changes of the store to the transcripts until `stop` is set, and then once more."""
        if self._off:
            return
        wait_for_all = 0.0
        while not stop.is_set():
            pause = NEW_EVERY_S
            if wait_for_all <= 0:
                await asyncio.to_thread(self._run_quietly, self.catch_up)
                wait_for_all = max(ALL_EVERY_S, SHARE * self._cost)
            else:
                cost = await asyncio.to_thread(self._run_quietly, self.catch_up_new)
                pause = min(max(NEW_EVERY_S, SHARE * cost), LONGEST_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()
            wait_for_all -= pause
        await asyncio.to_thread(self._run_quietly, self.catch_up)

    def _run_quietly(self, work: Callable[[], int]) -> float:
        """Run `work` and return how many seconds of processor time it took. An error is logged and not raised,
        because the next comparison writes the transcript lines that are missing."""
        began = thread_time()
        try:
            work()
        except (errors.HermesError, OSError) as problem:
            log.warning("transcripts are not up to date: %s", problem)
        return thread_time() - began

    def catch_up(self) -> int:
        """Compare every session with its transcript, and append the lines that are missing there. This includes
        changes that other processes made in the store. Return the number of lines written."""
        if self._off:
            return 0
        with self._alone:
            began, marks = thread_time(), self._load_marks()
            self._after = self._db.mirrored.find_highest_id()
            lines, at, seen = 0, "", set[str]()
            while some := self._db.mirrored.list_outlines(at, AT_ONCE, everybody=self._everybody):
                at = some[-1][0]
                for session_id, outline in some:
                    seen.add(session_id)
                    file = self._file(session_id)
                    if file is not None and not marks.is_current(session_id, _digest(outline), file):
                        lines += self._write(session_id, file)
            lines += sum(self._mark_deleted(session_id) for session_id in marks.list_missing(seen))
            marks.save(self._after)
            self._cost = thread_time() - began
            return lines

    def catch_up_new(self) -> int:
        """Append the missing lines only to the transcripts of sessions with new messages. Return the number of
        lines written. How long this takes does not depend on the number of other sessions."""
        if self._off:
            return 0
        with self._alone:
            self._load_marks()
            lines = 0
            while True:
                newest, touched = self._db.mirrored.list_changed(
                    self._after, AT_ONCE, everybody=self._everybody
                )
                if newest == self._after:
                    return lines
                for session_id in touched:
                    file = self._file(session_id)
                    lines += self._write(session_id, file) if file is not None else 0
                self._after = newest

    def catch_up_session(self, session_id: str) -> int:
        """Append the missing lines to the transcripts of all sessions of the conversation to which `session_id`
        belongs, and to that of the parent of its first session. Return the number of lines written."""
        if self._off:
            return 0
        with self._alone:
            files = [
                (related_id, self._file(related_id))
                for related_id in self._db.mirrored.list_related(session_id)
            ]
            return sum(self._write(related_id, file) for related_id, file in files if file is not None)

    def _load_marks(self) -> Marks:
        if self._marks is None:
            home.make_private_folder(self._folder)
            self._marks = Marks.read(self._folder, self._db)
        return self._marks

    # ---------------------------------------------------------------- writing

    def _file(self, session_id: str) -> Path | None:
        """Return the path of a session's transcript, or None if the session id cannot be a file name."""
        name = f"{session_id}.jsonl"
        is_name = Path(name).name == name and "\0" not in name and len(name.encode()) <= 255
        return self._folder / name if is_name else None

    def _write(self, session_id: str, file: Path) -> int:
        """Append to the transcript `file` the lines that it lacks compared with the stored session. Return the
        number of lines written."""
        descriptor = self._open_file(file)
        if descriptor is None:
            return 0
        try:
            file_state = self._read_file_state(session_id, descriptor)
            # The file is new, was written by an older program, or its session was deleted.
            if file_state.copy.columns is None:
                file_state = file_state._replace(copy=TranscriptState())
            # Read the store only after the file exists and is locked. A deletion removes the rows before the
            # file. Therefore, either the session is already missing from the store here, or the deletion
            # removes this file later.
            now = self._db.mirrored.read_session(session_id, file_state.copy.last_call)
            if now is None:
                if not file_state.size:
                    file.unlink(missing_ok=True)
                return 0
            difference = compute_difference(file_state.copy, now)
            lines = 0
            for some in self._batches(session_id, difference):
                data = encode_lines(some)
                _append(descriptor, data, file_state.size)
                file_state.copy.add(some)
                file_state = file_state._replace(size=file_state.size + len(data))
                lines += len(some)
            self._remember(session_id, file_state)
            if self._marks is not None:
                self._marks.set_mark(session_id, _digest(now.outline), file_state.size, changed=lines > 0)
            return lines
        except OSError as problem:
            self._copies.pop(session_id, None)
            log.warning("%s is not up to date: %s", file, problem.strerror or problem)
            return 0
        finally:
            os.close(descriptor)

    def _batches(self, session_id: str, difference: Difference) -> Iterator[list[Object]]:
        if difference.lines:
            yield difference.lines
        for at in range(0, len(difference.message_ids), MESSAGES_AT_ONCE):
            rows = self._db.mirrored.read_messages(
                session_id, difference.message_ids[at : at + MESSAGES_AT_ONCE]
            )
            yield [make_message(row) for row in rows]
        if difference.after:
            yield difference.after

    def _open_file(self, file: Path) -> int | None:
        """Open and lock a transcript, and create it if needed. Return its file descriptor, or None if it cannot be
        opened."""
        home.make_private_folder(self._folder)
        while True:
            try:
                descriptor = home.open_private_file(file, os.O_RDWR | os.O_CREAT)
            except OSError as problem:
                log.warning("%s cannot be written: %s", file, problem.strerror or problem)
                return None
            lock_descriptor(descriptor, fcntl.LOCK_EX)
            if _is_same_file(file, descriptor):
                return descriptor
            os.close(descriptor)  # the file was deleted or replaced during the wait

    def _read_file_state(self, session_id: str, descriptor: int) -> _FileState:
        """Return the session state that an open transcript describes. If the last line is incomplete, it is cut
        off. Its content is appended again later."""
        state = os.fstat(descriptor)
        file_state = self._copies.get(session_id)
        if file_state is not None and (file_state.inode, file_state.size) == (state.st_ino, state.st_size):
            return file_state
        size = _measure_whole_lines(descriptor, state.st_size)
        if size != state.st_size:
            log.info("transcript %s ended with an incomplete line; the line is written again", session_id)
            os.ftruncate(descriptor, size)
        with open(descriptor, "rb", closefd=False) as lines:
            lines.seek(0)
            return _FileState(TranscriptState.from_lines(lines), state.st_ino, size)

    def _remember(self, session_id: str, file_state: _FileState) -> None:
        self._copies[session_id] = file_state
        self._copies.move_to_end(session_id)
        if len(self._copies) > REMEMBERED:
            self._copies.popitem(last=False)

    def _mark_deleted(self, session_id: str) -> int:
        """If a session was deleted from the store and its transcript still exists, append a deletion event to the
        transcript. A missing transcript is not created. Return the number of lines written."""
        file = self._file(session_id)
        assert self._marks is not None
        self._marks.forget(session_id)
        self._copies.pop(session_id, None)
        if file is None or self._db.mirrored.has_session(session_id) or not file.exists():
            return 0
        descriptor = self._open_file(file)
        if descriptor is None:
            return 0
        try:
            file_state = self._read_file_state(session_id, descriptor)
            if not file_state.size:
                file.unlink(missing_ok=True)
                return 0
            _append(descriptor, encode_lines([make_event(DELETED)]), file_state.size)
            return 1
        except OSError as problem:
            log.warning("%s is not up to date: %s", file, problem.strerror or problem)
            return 0
        finally:
            os.close(descriptor)


def _is_same_file(file: Path, descriptor: int) -> bool:
    with suppress(OSError):
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    return False


def _append(descriptor: int, data: bytes, at: int) -> None:
    """Write `data` at the position `at`, the end of an open transcript. If an error occurs, cut the file off at
    `at` again, so that no part of `data` stays in it."""
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.pwrite(descriptor, rest, at + len(data) - len(rest)) :]
    except BaseException:
        with suppress(OSError):
            os.ftruncate(descriptor, at)
        raise


def _measure_whole_lines(descriptor: int, size: int) -> int:
    """Return the number of bytes up to the end of the last complete line of an open transcript. `size` is the size
    of the file."""
    end = size
    while end:
        start = max(0, end - 65_536)
        position = os.pread(descriptor, end - start, start).rfind(b"\n")
        if position >= 0:
            return start + position + 1
        end = start
    return 0


def _digest(outline: tuple[Any, ...]) -> str:
    return blake2b(repr(outline).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Marks:
    """The marks file. For each session, a mark holds a digest of the stored session and the size of the transcript at
    the time when both agreed. Marks are used only to skip comparisons."""

    def __init__(self, folder: Path, store: str, sessions: dict[str, tuple[str, int]]) -> None:
        self._folder, self._store, self._sessions = folder, store, sessions
        self._written: set[str] = set()
        self._saved = False

    @classmethod
    def read(cls, folder: Path, db: SessionDB) -> Marks:
        """Read the marks file of the transcript folder and return its marks. If the file belongs to another store,
        the result has no marks."""
        store = db.get_meta(STORE_KEY)
        if store is None:
            store = make_uid()
            db.set_meta(STORE_KEY, store)
        data = _read_marks(folder / MARKS_FILE)
        if data.get("store") != store:
            return cls(folder, store, {})
        sessions = {session_id: (str(mark[0]), int(mark[1])) for session_id, mark in data["sessions"].items()}
        if data["newest"] > db.mirrored.find_highest_id():
            # An older backup may have been restored. Sessions that it does not contain were not deleted.
            sessions = {
                session_id: mark
                for session_id, mark in sessions.items()
                if db.mirrored.has_session(session_id)
            }
        return cls(folder, store, sessions)

    def is_current(self, session_id: str, digest: str, file: Path) -> bool:
        """Return whether the transcript `file` is up to date according to the session's mark. This is the case if
        neither `digest`, the digest of the stored session, nor the size of the file has changed since the mark was
        set."""
        mark = self._sessions.get(session_id)
        if mark is None or mark[0] != digest:
            return False
        with suppress(OSError):
            return file.stat().st_size == mark[1]
        return False

    def set_mark(self, session_id: str, digest: str, size: int, *, changed: bool) -> None:
        if self._sessions.get(session_id) != (digest, size):
            self._sessions[session_id] = (digest, size)
            self._saved = False
        if changed:
            self._written.add(session_id)

    def forget(self, session_id: str) -> None:
        self._saved = self._sessions.pop(session_id, None) is None and self._saved
        self._written.discard(session_id)

    def list_missing(self, sessions: Collection[str]) -> list[str]:
        return [session_id for session_id in self._sessions if session_id not in sessions]

    def save(self, newest: int) -> None:
        """Flush the changed transcripts to disk, then write the marks file that describes them. `newest` is the
        highest message id that the transcripts include."""
        if self._saved:
            return
        for session_id in self._written:
            _sync_file(self._folder / f"{session_id}.jsonl")
        self._written.clear()
        data = {"store": self._store, "newest": newest, "sessions": self._sessions}
        replace_file(self._folder / MARKS_FILE, json.dumps(data).encode())
        self._saved = True


def _read_marks(file: Path) -> dict[str, Any]:
    """Return the content of the marks file, or an empty dict if it is missing or invalid."""
    try:
        data = json.loads(file.read_bytes())
        for mark in data["sessions"].values():
            str(mark[0]), int(mark[1])
        return dict(data) if isinstance(data["newest"], int) else {}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}


def _sync_file(file: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
