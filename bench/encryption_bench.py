"""Measures the cost of encryption: the CPU time of appends and searches with a plain and an encrypted store,
in one process.

    python bench/encryption_bench.py

The program requires `apsw-sqlite3mc` instead of `apsw` (see docs/encryption.md).
"""

from __future__ import annotations

import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from hermes.store.sqlite.encryption import encryption
from hermes_state import SessionDB

MESSAGES, ROUNDS, SEARCHES = 10_000, 10, 60
WORDS = [secrets.token_hex(3) for _ in range(4000)]


def main() -> None:
    if not encryption.can_encrypt():
        sys.exit("apsw-sqlite3mc is required instead of apsw; see docs/encryption.md")
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for name, key in (("plain", None), ("encrypted", secrets.token_hex(32))):
            if key:
                os.environ["HERMES_STORE_KEY"] = key
            stores[name] = SessionDB(Path(folder) / name / "state.db")
            stores[name].create_session("s", "cli")
        report("append", stores, appends)
        report("search", stores, searches)
        report("open", stores, opens)
        for db in stores.values():
            db.close()
        sizes = {name: db.db_path.stat().st_size for name, db in stores.items()}
        print(f"size: plain {sizes['plain'] / 1e6:.1f} MB, encrypted {sizes['encrypted'] / 1e6:.1f} MB")


def report(what: str, stores: dict[str, SessionDB], work: Callable[[SessionDB, random.Random], int]) -> None:
    """Print the median CPU time per operation for each store. The operations alternate between the stores, so
    that other load on the machine affects all stores equally."""
    took: dict[str, list[float]] = {name: [] for name in stores}
    for at in range(ROUNDS):
        for name, db in stores.items():
            began = time.process_time()
            times = work(db, random.Random(at))
            took[name].append((time.process_time() - began) / times * 1e6)
    plain, encrypted = (statistics.median(took[name]) for name in ("plain", "encrypted"))
    print(f"{what}: plain {plain:.0f} us, encrypted {encrypted:.0f} us of CPU, ratio {encrypted / plain:.2f}")


def appends(db: SessionDB, chance: random.Random) -> int:
    for _ in range(MESSAGES // ROUNDS):
        db.append_message("s", "user", " ".join(chance.choices(WORDS, k=60)))
    return MESSAGES // ROUNDS


def searches(db: SessionDB, chance: random.Random) -> int:
    for _ in range(SEARCHES):
        db.search_messages(" ".join(chance.choices(WORDS, k=1)), limit=20)
    return SEARCHES


def opens(db: SessionDB, chance: random.Random) -> int:
    SessionDB(db.db_path).close()
    return 1


if __name__ == "__main__":
    main()
