"""Checkpoints, which copy the write-ahead log into the database file. They run on a separate connection and
thread, so that no write waits for them."""

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
"""A write-ahead log longer than `LONG_LOG` pages is restarted once fewer than `NEARLY` pages are left to
copy.

A passive checkpoint cannot restart the log while some process is always reading or writing. Without a restart
the log grows without limit: each page lookup searches all of it, and every commit extends the file.
"""
RESTART_S = 0.02
"""How long an attempt to restart the log may block other writers before it gives up."""
STOP_NAP_S = 0.0002


class Checkpointer:
    """Copies the write-ahead log of a store into its database file when a caller asks for it. Holds no reference to
    the object that represents the store, so that an unused store object can be freed.
    """

    def __init__(self, path: Path, guard: Guard) -> None:
        self._path = path
        self._guard = guard
        self.is_stopped = False
        # Locks and threads come from `_thread`. Those of `threading` are Python code, so a signal handler that
        # writes or closes the store could interrupt them in an inconsistent state.
        self._no_request = allocate_lock()
        self._no_request.acquire()
        self._claimed = allocate_lock()
        self._serving: set[int] = set()

    def ask(self) -> None:
        if not self.is_stopped and self._claimed.acquire(blocking=False):
            try:
                start_new_thread(self._serve, ())
            except BaseException as problem:
                self._claimed.release()
                if not isinstance(problem, RuntimeError):
                    raise
                # No more threads can be started. The write that requested the checkpoint is committed anyway.
                log.debug("checkpoint of %s postponed: %s", self._path, problem)
        self._wake()

    def stop(self) -> None:
        """Wait for a running checkpoint to end, and start no further one."""
        self.is_stopped = True
        # A thread that is not listed yet checks `is_stopped` before it opens anything. While the interpreter shuts
        # down, other threads no longer run.
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
            if not self.is_stopped:
                self._checkpoint_on_request()
        finally:
            with suppress(RuntimeError):
                self._claimed.release()  # if the thread could not start, the next request tries again
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
                if self.is_stopped:
                    return
                try:
                    with Inside():
                        self._checkpoint(connection, lock)
                except apsw.Error as problem:
                    # The log only grows a little longer. The next checkpoint copies these frames too.
                    log.debug("checkpoint of %s postponed: %s", self._path, problem)
        except OSError as problem:  # no file descriptors
            log.debug("checkpoint of %s postponed: %s", self._path, problem)
        finally:
            with Inside():
                if lock is not None:
                    lock.close()
                connection.close()

    def _checkpoint(self, connection: apsw.Connection, lock: LogLock) -> None:
        try:
            self._guard.examine_log()
            # Without this check, frames of another log could be copied into the file.
            if not lock.share() or not self._guard.is_log_in_place():
                return
            _busy, pages, moved = run(connection, "PRAGMA wal_checkpoint(PASSIVE)")[0]
            if pages > LONG_LOG and pages - moved < NEARLY:
                run(connection, "PRAGMA wal_checkpoint(RESTART)")
            if self._guard.is_log_missing():
                self._guard.note_own_write()
        finally:
            lock.release()
