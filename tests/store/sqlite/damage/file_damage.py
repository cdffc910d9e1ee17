"""Damages real files page by page, and reads their contents before and after."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes_state import SessionDB

SESSIONS = 6
MESSAGES = 50
PAGE = 4096
SCHEMAS = Path(__file__).parents[1] / "reference_schemas"

PAGES = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path"


@contextmanager
def sql(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


def pages_of(path: Path, name: str, kind: str = "leaf") -> list[int]:
    with sql(path) as connection:
        return [row[0] for row in connection.execute(PAGES, (name, kind))]


def overwrite(path: Path, page: int, data: bytes = b"\0" * PAGE) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(data)


def cut_in_half(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE + PAGE // 2)
        file.write(bytes(PAGE // 2))


def blank_entries(path: Path, page: int) -> None:
    """Overwrite the entries of a page with zeros. Keep the page header and the list of entry positions."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        data = file.read(PAGE)
        file.seek((page - 1) * PAGE)
        file.write(data[: 8 + 2 * int.from_bytes(data[3:5], "big")].ljust(PAGE, b"\0"))


def zero(path: Path, name: str, kind: str = "leaf", at: int = 0) -> int:
    pages = pages_of(path, name, kind)
    assert not os.path.exists(f"{path}-wal"), "the log must be folded in before a page is destroyed"
    overwrite(path, pages[at])
    return pages[at]


def ids_on_page(path: Path, page: int) -> set[int]:
    """Return the ids of the messages on a leaf page of `messages`."""
    from hermes.store.sqlite.repair.pages import Image

    descriptor = os.open(path, os.O_RDONLY)
    try:
        image = Image(descriptor, None)
        return {row.rowid for row in image.rows(page, image.page(page))}
    finally:
        os.close(descriptor)


def everything(path: Path) -> dict[str, Any]:
    """Return the sessions and messages as callers receive them."""
    with SessionDB(path) as db:
        return {
            row["id"]: (row["title"], row["source"], db.get_messages(row["id"]))
            for row in db.search_sessions(limit=1000)
        }


def folder(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}


def child(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from hermes_state import SessionDB\nimport sys\npath = sys.argv[1]\n" + code,
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )


def repaired(path: Path, **options: bool) -> Any:
    report = SessionDB.repair_file(path, **options)
    assert report.ok, report.lines()
    return report


def assert_whole(path: Path) -> None:
    with SessionDB(path) as db:
        health = db.verify()
        assert health.ok, health.lines()


def stored_messages(path: Path) -> dict[int, Any]:
    return {message["id"]: message for _, _, messages in everything(path).values() for message in messages}


def crashed(path: Path, code: str) -> None:
    """Write in another process and kill it, so that the write-ahead log is left behind."""
    done = child(
        f"import os, signal\ndb = SessionDB(path)\n{code}\nos.kill(os.getpid(), signal.SIGKILL)", path
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert os.path.getsize(f"{path}-wal") > 0


def pages_of_quietly(path: Path, name: str) -> list[int]:
    """Return `pages_of` for a copy of the file. Opening the original file would write its log into it."""
    copy = path.parent.parent / "copy.db"
    shutil.copyfile(path, copy)
    return pages_of(copy, name)
