"""Checkpoints run beside the writer, on a connection and a thread of their own, never on the acknowledging path."""

from __future__ import annotations

import sys
import time
from _thread import allocate_lock, get_ident, start_new_thread
from contextlib import suppress
from pathlib import Path

import apsw

from hermes.logs import get_logger
from hermes.store.sqlite.connection import READ_SOMETHING, Patience, connect, run
from hermes.store.sqlite.fork_safety import Inside
from hermes.store.sqlite.wal.file_guard import Guard
from hermes.store.sqlite.wal.log_lock import LogLock

log = get_logger(__name__)

LONG_LOG, NEARLY = 4_000, 1_000
"""In pages. While somebody always writes or reads, a checkpoint that waits for nobody never lets the log begin anew: it
grows without end, every page is looked for in all of it, and every commit has to make the file longer."""
RESTART_S = 0.02
"""How long others are held up for that, if it does not work out."""
STOP_NAP_S = 0.0002


class Checkpointer:
    """Moves the write-ahead log into the file when asked. It holds no reference to the store it serves."""

    def __init__(self, path: Path, guard: Guard) -> None:
        self._path = path
        self._guard = guard
        self._stopped = False
        # Locks and threads of `_thread`: those of `threading` have a state of their own between their lines, in which
        # a signal handler may find them that writes or closes the store.
        self._no_request = allocate_lock()
        self._no_request.acquire()
        self._claimed = allocate_lock()
        self._serving: set[int] = set()

    def ask(self) -> None:
        if not self._stopped and self._claimed.acquire(blocking=False):
            try:
                start_new_thread(self._serve, ())
            except BaseException as problem:
                self._claimed.release()
                if not isinstance(problem, RuntimeError):
                    raise
                # No more threads: the write that asks is committed all the same.
                log.debug("checkpoint of %s put off: %s", self._path, problem)
        self._wake()

    def stop(self) -> None:
        """No checkpoint is under way afterwards, and none begins."""
        self._stopped = True
        # A thread that is not listed yet sees that it is stopped before it opens anything.
        # When the interpreter ends, other threads do not get on any more.
        while self._serving - {get_ident()} and not sys.is_finalizing():
            self._wake()
            time.sleep(STOP_NAP_S)

    def _wake(self) -> None:
        with suppress(RuntimeError):  # awake already
            self._no_request.release()

    def _serve(self) -> None:
        thread = get_ident()
        self._serving.add(thread)
        try:
            if not self._stopped:
                self._checkpoint_on_request()
        finally:
            with suppress(RuntimeError):
                self._claimed.release()  # if it could not even begin, whoever asks next tries again
            self._serving.discard(thread)

    def _checkpoint_on_request(self) -> None:
        try:
            with Inside():
                connection = connect(self._path)
                run(connection, READ_SOMETHING)  # opens the log
            connection.set_busy_handler(Patience(RESTART_S))
        except apsw.Error as problem:
            log.warning("no checkpoints for %s: %s", self._path, problem)
            return
        lock = None
        try:
            lock = LogLock(self._guard)
            while True:
                self._no_request.acquire()
                if self._stopped:
                    return
                try:
                    with Inside():
                        self._checkpoint(connection, lock)
                except apsw.Error as problem:
                    # The log only grows a little longer; the next one takes it along.
                    log.debug("checkpoint of %s put off: %s", self._path, problem)
        except OSError as problem:  # no file descriptors
            log.debug("checkpoint of %s put off: %s", self._path, problem)
        finally:
            with Inside():
                if lock is not None:
                    lock.close()
                connection.close()

    def _checkpoint(self, connection: apsw.Connection, lock: LogLock) -> None:
        try:
            self._guard.examine_log()
            # Else what is in another log would be put into the file.
            if not lock.share() or not self._guard.is_log_in_place():
                return
            _busy, pages, moved = run(connection, "PRAGMA wal_checkpoint(PASSIVE)")[0]
            if pages > LONG_LOG and pages - moved < NEARLY:
                run(connection, "PRAGMA wal_checkpoint(RESTART)")
            if self._guard.is_log_missing():
                self._guard.note_own_write()
        finally:
            lock.release()
