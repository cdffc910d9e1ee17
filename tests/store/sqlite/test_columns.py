"""A column of `sessions` or `messages` is declared in `schema.sql` and in `store/columns.py`, and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hermes
from hermes.store.columns import MESSAGES, SESSIONS
from hermes.store.sqlite.schema import read_declared
from hermes_state import SessionDB

SOURCES = Path(hermes.__file__).parents[1]
ROOT = Path(__file__).parents[3]
WORKER = Path(__file__).with_name("column_worker.py")

SCHEMA, COLUMNS = Path("hermes/store/sqlite/schema.sql"), Path("hermes/store/columns.py")
NEW_LINES = {
    SCHEMA: {
        "    lease_epoch INTEGER NOT NULL DEFAULT 0,\n": "    mood TEXT,\n",
        "    thinned_bytes INTEGER,\n": "    mood TEXT,\n",
    },
    COLUMNS: {
        'SESSIONS: tuple[SessionColumn, ...] = (\n': '    SessionColumn("mood", "text", "caller", in_lists=True,'
        ' is_inherited=True, merge="newer"),\n',
        'MESSAGES: tuple[MessageColumn, ...] = (\n': '    MessageColumn("mood", "text", "caller", "completed",'
        ' replay="always"),\n',
    },
}  # fmt: skip
"""The files that must be edited for a new column. Each maps existing lines to the line to insert after
them."""


def test_the_lists_name_the_columns_of_the_schema() -> None:
    columns = read_declared().columns
    for table, listed in (("sessions", SESSIONS), ("messages", MESSAGES)):
        names = [column.name for column in listed]
        assert len(set(names)) == len(names)
        assert set(names) == columns[table]


def test_a_new_column_needs_two_files_and_is_kept_everywhere(tmp_path: Path) -> None:
    sources = tmp_path / "src"
    for name in ("hermes", "hermes_state.py", "hermes_constants.py"):
        source = SOURCES / name
        if source.is_dir():
            shutil.copytree(source, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, sources / name)
    for file, lines in NEW_LINES.items():
        text = (sources / file).read_text()
        for line, added in lines.items():
            assert text.count(line) == 1
            text = text.replace(line, line + added)
        (sources / file).write_text(text)
    folder = tmp_path / "stores"
    folder.mkdir()
    with SessionDB(folder / "old.db") as db:
        db.create_session("old", "cli")
        db.append_message("old", "user", "hello")

    paths = os.pathsep.join(map(str, (sources, ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "HERMES_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, WORKER, folder], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
