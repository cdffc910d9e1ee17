"""A process is killed with SIGKILL at any time. Every acknowledged message is stored once, in order, and can
be found.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.survival.processes import LONG, Worker, check_said

ROUNDS = 60 if LONG else 8
AT_ONCE = 5
GROUPS = 5 if LONG else 1


@pytest.mark.timeout(600 if LONG else 120)
@pytest.mark.parametrize("seed", range(GROUPS))
@pytest.mark.full
def test_acknowledged_messages_survive_random_kills(home: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = home / "state.db"
    acknowledged: dict[str, dict[int, int]] = {}
    for number in range(ROUNDS):
        _one_round(path, number, rng, acknowledged)
    assert sum(map(len, acknowledged.values())) > ROUNDS * 10

    with SessionDB(path) as db:
        for tag, known in acknowledged.items():
            check_said(db.get_messages(f"s-{tag}"), known, tag)
            for n in rng.sample(sorted(known), min(3, len(known))):
                hits = db.search_messages(f"{tag}n{n}")
                assert [hit["id"] for hit in hits] == [known[n]]
            session = db.get_session(f"s-{tag}")
            counted = 0 if session is None else session["message_count"]
            assert counted == len(db.get_messages(f"s-{tag}"))
        report = db.verify()
        assert report.ok, report.lines()
        assert len(db.search_messages("fox", limit=100_000)) == db.message_count()


def _one_round(path: Path, number: int, rng: random.Random, acknowledged: dict[str, dict[int, int]]) -> None:
    """Run several processes that write. Kill each of them after a number of acknowledgements, shortly after
    that, or while it opens the store."""
    with ExitStack() as stack:
        running = {f"r{number}w{n}": stack.enter_context(Worker()) for n in range(AT_ONCE)}
        for tag, worker in running.items():
            worker.start(
                "keep_appending",
                path=str(path),
                session=f"s-{tag}",
                tag=tag,
                search_every=rng.choice((0, 7, 40)),
            )
        for tag, worker in running.items():
            known = acknowledged[tag] = {}
            for _ in range(rng.choice((0, 1, rng.randrange(30), rng.randrange(90)))):
                line = worker.line()
                if "n" in line:
                    known[line["n"]] = line["id"]
            time.sleep(rng.random() * 0.01)  # so that the process dies during an operation
            worker.kill()
            for line in worker.lines():
                if "n" in line:
                    known[line["n"]] = line["id"]


def test_a_killed_process_does_not_block_the_next(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["one", "two"])
        worker.kill()
    with SessionDB(path) as db:
        db.append_message("s", "user", "three")
        assert [row["content"] for row in db.get_messages("s")] == ["one", "two", "three"]
    assert not Path(f"{path}-wal").exists()  # the last process to close removed the log
