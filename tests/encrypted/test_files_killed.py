"""Converts the files beside a store, and kills the process at each step. Every file is complete, and nothing
is lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.store.sealing.sealed_files import MARK
from hermes.store.sqlite.upkeep.conversion import decrypt_file, encrypt_file
from tests.encrypted.conftest import files_that_tell
from tests.encrypted.words import read_words, small_store, words_of, write_words


@pytest.mark.parametrize("verb", ["encrypt", "decrypt"])
def test_after_a_kill_every_file_is_whole_and_the_conversion_can_continue(
    home: Path, tmp_path: Path, key: bytes, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.delenv("HERMES_STORE_KEY")
    path = small_store(home)
    write_words()
    files, originals = read_words(), words_of(home)
    monkeypatch.setenv("HERMES_STORE_KEY", key.hex())
    if verb == "decrypt":
        encrypt_file(path, key)
    start = shutil.copytree(home, tmp_path / "start")

    def convert() -> None:
        decrypt_file(path) if verb == "decrypt" else encrypt_file(path, key)

    step, states = 0, set[tuple[bool, ...]]()
    while True:
        shutil.rmtree(home)
        shutil.copytree(start, home)
        if not killed_at(step, home, convert):
            break
        found = words_of(home)
        for name, data in found.items():
            assert data == originals[name] or data.startswith(MARK)
        states.add(tuple(data.startswith(MARK) for data in found.values()))
        assert read_words() == files
        convert()
        if verb == "encrypt":
            assert files_that_tell(home) == []
        else:
            assert words_of(home) == originals
        assert read_words() == files
        assert list(home.rglob("*.hermes-partial")) == []
        step += 1
    assert len(states) == len(originals) + 1  # there was a kill between any two files


def killed_at(step: int, home: Path, work: Callable[[], None]) -> bool:
    """Run `work` in a child process. Kill the process just before it opens, renames or removes a file beside
    the store for the `step`-th time. Return False if the work ended before that."""
    child = os.fork()
    if not child:
        left = step

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            changes = event in ("os.rename", "os.remove") or (event == "open" and arguments[2] != os.O_RDONLY)
            name = str(arguments[0]) if arguments else ""
            if changes and name.startswith(str(home)) and not name.startswith(str(home / "state.db")):
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)
