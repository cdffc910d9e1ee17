"""Blobs: the bytes of large attachments, each stored once by its hash, for as long as a message refers to it.

A blob, its message and the reference between them are one transaction, and so are the last reference and its blob on
their way out. Other programs know nothing of references: what they delete leaves blobs behind, which `collect` takes
away, and what they copy is noted by the triggers, and gets its references before anything is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.store import content
from hermes.store.engine import Engine, Reader, Writer
from hermes.store.sessions.attachments import (
    Attachment,
    compute_hash,
    find_hashes,
    has_references,
    restore_attachments,
)
from hermes.text import format_count

if TYPE_CHECKING:
    from hermes.store.values import Collected

AT_ONCE = 64
"""How many blobs one transaction collects: they may be large, and others wait."""
LAST_ID = 2**63 - 1
MOST_TOLD = 20

INSERT = """INSERT INTO blobs (hash, media_type, size, bytes, created_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
REFER = "INSERT INTO blob_refs (message_id, hash) VALUES (?, ?) ON CONFLICT DO NOTHING"
REFER_IF_KNOWN = """INSERT INTO blob_refs (message_id, hash) SELECT ?, hash FROM blobs WHERE hash = ?
    ON CONFLICT DO NOTHING"""
DETACH = "DELETE FROM blob_refs WHERE message_id = ?"
BYTES = "SELECT bytes FROM blobs WHERE hash = ?"
HELD_BY = (
    "SELECT DISTINCT r.hash FROM messages m JOIN blob_refs r ON r.message_id = m.id WHERE m.session_id = ?"
)
NOTED = """SELECT m.id, m.content, m.content_kind FROM changed_messages c JOIN messages m ON m.id = c.message_id
    WHERE c.message_id <= ?"""
REFERRING = (
    "SELECT id, content, content_kind FROM messages WHERE content_kind IS NULL OR content_kind = 'blobs'"
)

IN_USE = "SELECT 1 FROM blob_refs r JOIN messages m ON m.id = r.message_id WHERE r.hash = ? LIMIT 1"
FORGET = "DELETE FROM blob_refs WHERE hash = ?"

OF_NO_MESSAGE = "NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = blob_refs.message_id)"
OF_NO_REFERENCE = "NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.hash = blobs.hash)"
FORGET_DANGLING = " ".join(("DELETE FROM blob_refs WHERE", OF_NO_MESSAGE))
COUNT_DANGLING = " ".join(("SELECT count(*) FROM blob_refs WHERE", OF_NO_MESSAGE))
LOOSE = " ".join(("SELECT hash, size FROM blobs WHERE", OF_NO_REFERENCE, "LIMIT ?"))
COUNT_LOOSE = " ".join(("SELECT count(*) FROM blobs WHERE", OF_NO_REFERENCE))
DROP = " ".join(("DELETE FROM blobs WHERE hash = ? AND", OF_NO_REFERENCE))

MISSING = """SELECT r.message_id, r.hash FROM blob_refs r JOIN messages m ON m.id = r.message_id
    LEFT JOIN blobs b ON b.hash = r.hash WHERE b.hash IS NULL ORDER BY r.message_id LIMIT ?"""
EVERY = "SELECT hash, bytes FROM blobs"


class Blobs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Collected:
        """Remove the blobs to which no message refers, and references of messages that are gone."""
        from hermes.store.values import Collected

        with self._engine.read() as reader:
            if not (reader.value(COUNT_LOOSE) or reader.value(COUNT_DANGLING)):
                return Collected(0, 0)
        total = Collected(0, 0)
        while True:
            batch = self._engine.write(collect_batch, share=False)
            total = Collected(total.blobs + batch.blobs, total.bytes + batch.bytes)
            if batch.blobs < AT_ONCE:
                return total


# -------------------------------------------------------------------- within a transaction of somebody else


def decode(reader: Reader, stored: Any, kind: str | None) -> Any:
    """The content as it was given, with its attachments. An attachment that is lost is said to be missing."""
    value = content.decode(stored, kind)
    if not has_references(stored, kind):
        return value
    return restore_attachments(value, partial(reader.value, BYTES), foreign=kind is None)


def attach_blobs(writer: Writer, message_id: int, attachments: Iterable[Attachment]) -> None:
    """Store what is new of these, and that the message refers to them."""
    for hash_, media_type, data in attachments:
        writer.run(INSERT, hash_, media_type, len(data), data, clock.now())
        writer.run(REFER, message_id, hash_)


def detach_blobs(writer: Writer, message_id: int) -> None:
    """Forget what a message refers to, because its content is another now; `drop` what it held afterwards."""
    writer.run(DETACH, message_id)


def list_hashes(reader: Reader, session_id: str) -> list[bytes]:
    """What a session's messages refer to: ask before they are deleted, and `drop` it afterwards."""
    return [row[0] for row in reader.rows(HELD_BY, session_id)]


def drop_unused(writer: Writer, hashes: Iterable[bytes]) -> None:
    """Remove those of these blobs to which nothing refers any more."""
    hashes = list(hashes)
    if hashes:
        adopt_references(writer)
    for hash_ in hashes:
        if not writer.value(IN_USE, hash_):
            writer.run(FORGET, hash_)
            writer.run(DROP, hash_)


def adopt_references(writer: Writer, up_to: int = LAST_ID) -> None:
    """Give references to noted messages that other programs copied or moved, so that they keep their blobs."""
    _add_references(writer, writer.rows(NOTED, up_to))


def adopt_all_references(writer: Writer) -> None:
    """The same for every message: after a repair, when references may be lost."""
    _add_references(writer, writer.each(REFERRING))


def _add_references(writer: Writer, rows: Iterable[tuple[Any, ...]]) -> None:
    for message_id, stored, kind in rows:
        if has_references(stored, kind):
            for hash_ in find_hashes(stored):
                writer.run(REFER_IF_KNOWN, message_id, hash_)


def collect_batch(writer: Writer) -> Collected:
    """What nothing refers to, as much as fits in one transaction; the check and the removal are the same one."""
    from hermes.store.values import Collected

    adopt_references(writer)
    writer.run(FORGET_DANGLING)
    sizes = [size for hash_, size in writer.rows(LOOSE, AT_ONCE) if writer.run(DROP, hash_)]
    return Collected(len(sizes), sum(sizes))


# -------------------------------------------------------------------- looking for damage


def find_damage(reader: Reader) -> list[str]:
    """What is wrong with the attachments of messages."""
    problems = [
        f"attachment {_format_hash(hash_)} of message {message_id} is missing"
        for message_id, hash_ in reader.rows(MISSING, MOST_TOLD)
    ]
    problems += [
        f"attachment {_format_hash(hash_)} holds other bytes than were stored"
        for hash_, data in reader.each(EVERY)
        if not is_whole(hash_, data)
    ]
    return problems


def find_drift(reader: Reader) -> list[str]:
    """What `collect` would take away."""
    problems = []
    if loose := reader.value(COUNT_LOOSE):
        problems.append(f"{format_count(loose, 'attachment')} of deleted messages")
    if dangling := reader.value(COUNT_DANGLING):
        problems.append(f"{format_count(dangling, 'reference')} of deleted messages to attachments")
    return problems


def _format_hash(hash_: object) -> str:
    """The beginning of a hash; where a page is damaged anything may stand in its place."""
    return hash_.hex()[:12] if isinstance(hash_, bytes) else repr(hash_)[:12]


def is_whole(hash_: object, data: object) -> bool:
    return isinstance(data, bytes) and compute_hash(data) == hash_
