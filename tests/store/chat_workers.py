"""Worker commands for the tests of leases and mailboxes. `tests/survival/workers.py` describes the protocol."""

from __future__ import annotations

import time

from hermes_state import SessionDB
from tests.stored_rows import read_rows
from tests.survival import workers
from tests.survival.workers import say, stores


def acquire(session: str, seconds: float = 60.0) -> int:
    return stores["main"].leases.acquire(session, "worker", seconds).epoch


def say_under_lease(session: str, text: str, epoch: int) -> int:
    return stores["main"].append_message(session, "user", text, lease_epoch=epoch)


def accept_until_killed(path: str, key: str, first: int, last: int) -> None:
    """Accept the messages from `first` to `last` - 1, as from a platform that delivers each message again
    until it is acknowledged."""
    with SessionDB(path) as db:
        say(ready=True)
        for number in range(first, last):
            taken = db.inbox.accept(key, "telegram", {"text": f"message {number}"}, number)
            say(accepted=number, new=taken is not None)


def work_until_killed(path: str, key: str, session: str) -> None:
    """Process the messages of a chat one at a time."""
    with SessionDB(path) as db:
        epoch = db.leases.acquire(session, "worker").epoch
        say(ready=True)
        while True:
            entry = db.inbox.claim(key, epoch, session)
            if entry is None:
                time.sleep(0.001)
                continue
            if not _was_said(db, session, entry.platform_message_id):
                db.append_message(
                    session,
                    "user",
                    entry.event["text"],
                    platform_message_id=entry.platform_message_id,
                    lease_epoch=epoch,
                )
            assert db.inbox.complete(entry.id, epoch)
            say(worked=entry.platform_message_id)


def claim_message(key: str, session: str, epoch: int) -> int | None:
    entry = stores["main"].inbox.claim(key, epoch, session)
    return None if entry is None else entry.id


def complete_message(entry: int, epoch: int) -> bool:
    return stores["main"].inbox.complete(entry, epoch)


def claim_delivery(key: str | None = None) -> int | None:
    entry = stores["main"].outbox.claim(key)
    return None if entry is None else entry.id


def _was_said(db: SessionDB, session: str, platform_message_id: str | None) -> bool:
    """Return whether a previous worker had stored the message before it was killed."""
    known = "SELECT 1 FROM messages WHERE session_id = ? AND platform_message_id = ?"
    return bool(read_rows(db, known, session, platform_message_id))


for command in (
    *(acquire, say_under_lease, accept_until_killed, work_until_killed),
    *(claim_message, complete_message, claim_delivery),
):
    workers.COMMANDS[command.__name__] = command

if __name__ == "__main__":
    workers.main()
