"""Checkpoints run beside the writer, on a connection and a thread of their own, never on the acknowledging path."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from hermes.logs import log_of
from hermes.store.sqlite.connection import READ_SOMETHING, Patience, connect, run
from hermes.store.sqlite.forking import Inside

log = log_of(__name__)

LONG_LOG, NEARLY = 4_000, 1_000
"""In pages. While somebody always writes or reads, a checkpoint that waits for nobody never lets the log begin anew: it
grows without end, every page is looked for in all of it, and every commit has to make the file longer."""
RESTART_S = 0.02
"""How long others are held up for that, if it does not work out."""


class Checkpointer:
    """Moves the write-ahead log into the file when asked. It holds no reference to the store it serves."""

    def __init__(self, path: Path, is_log_in_place: Callable[[], bool]) -> None:
        self._path = path
        self._is_log_in_place = is_log_in_place
        self._asked = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="hermes-checkpoint", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as problem:  # no more threads: the write that asks is committed all the same
                self._thread = None
                log.debug("checkpoint of %s put off: %s", self._path, problem)
        self._asked.set()

    def stop(self) -> None:
        self._stopped = True
        self._asked.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        try:
            self._checkpoint_when_asked()
        finally:
            if not self._stopped:  # it could not even begin: whoever asks next tries again
                self._thread = None

    def _checkpoint_when_asked(self) -> None:
        try:
            with Inside():
                connection = connect(self._path)
                run(connection, READ_SOMETHING)  # opens the log
            connection.set_busy_handler(Patience(RESTART_S))
        except apsw.Error as problem:
            log.warning("no checkpoints for %s: %s", self._path, problem)
            return
        try:
            while True:
                self._asked.wait()
                self._asked.clear()
                if self._stopped:
                    return
                if not self._is_log_in_place():  # else what is in another log would be put into the file
                    continue
                try:
                    with Inside():
                        _busy, pages, moved = run(connection, "PRAGMA wal_checkpoint(PASSIVE)")[0]
                        if pages > LONG_LOG and pages - moved < NEARLY:
                            run(connection, "PRAGMA wal_checkpoint(RESTART)")
                except apsw.Error as problem:
                    # The log only grows a little longer; the next one takes it along.
                    log.debug("checkpoint of %s put off: %s", self._path, problem)
        finally:
            with Inside():
                connection.close()
