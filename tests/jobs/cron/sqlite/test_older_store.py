"""A store of a version without scheduled jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hermes_state import SessionDB


def test_a_store_of_an_earlier_version_can_be_read_and_gets_the_table_when_it_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "older.db"
    with SessionDB(path) as db:
        db.create_session("a", "cli")
    remove_table(path)
    with SessionDB(path, read_only=True) as db:
        assert db.get_session("a") is not None
    with SessionDB(path) as db:
        assert db.job_runs.list_runs() == []


def remove_table(path: Path) -> None:
    script = "import sys, sqlite3; sqlite3.connect(sys.argv[1]).execute('DROP TABLE job_runs')"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
