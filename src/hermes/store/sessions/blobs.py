"""Blobs: the bytes of large attachments. Each blob is stored once, by its hash, as long as a message refers
to it.

A message, its blobs and its references are written in one transaction. When the last reference to a blob is
deleted, the blob is deleted in the same transaction. Other programs do not maintain references. If they
delete a message, its blob can be left without a reference; `collect` removes such blobs. If they copy a
message, triggers note the copy, and its references are added before any blob is deleted.
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
"""The maximum number of blobs that one transaction deletes. Blobs can be large, and other writers wait for
the transaction."""
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
        """Remove blobs without a reference, and references of deleted messages."""
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


# -------------------------------------------------------------------- for use in a caller's transaction


def decode(reader: Reader, stored: Any, kind: str | None) -> Any:
    """Decode the stored content of a message, including its attachments. A lost attachment is replaced by a
    text that says so."""
    value = content.decode(stored, kind)
    if not has_references(stored, kind):
        return value
    return restore_attachments(value, partial(reader.value, BYTES), foreign=kind is None)


def attach_blobs(writer: Writer, message_id: int, attachments: Iterable[Attachment]) -> None:
    """Store the attachments as blobs, unless they are already stored. Also store a reference from the message
    to each blob."""
    for hash_, media_type, data in attachments:
        writer.run(INSERT, hash_, media_type, len(data), data, clock.now())
        writer.run(REFER, message_id, hash_)


def detach_blobs(writer: Writer, message_id: int) -> None:
    """Delete the references from a message to its blobs, because the content of the message changes. The caller
    then calls `drop_unused` with the hashes of these blobs."""
    writer.run(DETACH, message_id)


def list_hashes(reader: Reader, session_id: str) -> list[bytes]:
    """Return the hashes of the blobs that a session's messages refer to. Call this before the messages are
    deleted, and pass the hashes to `drop_unused` afterwards."""
    return [row[0] for row in reader.rows(HELD_BY, session_id)]


def drop_unused(writer: Writer, hashes: Iterable[bytes]) -> None:
    """Delete the blobs in `hashes` that no message refers to."""
    hashes = list(hashes)
    if hashes:
        adopt_references(writer)
    for hash_ in hashes:
        if not writer.value(IN_USE, hash_):
            writer.run(FORGET, hash_)
            writer.run(DROP, hash_)


def adopt_references(writer: Writer, up_to: int = LAST_ID) -> None:
    """Add the missing references of messages that other programs copied or moved, so that their blobs are
    kept. Triggers have noted these messages."""
    _add_references(writer, writer.rows(NOTED, up_to))


def adopt_all_references(writer: Writer) -> None:
    """Add the missing references of all messages. Used after a repair, which can lose references."""
    _add_references(writer, writer.each(REFERRING))


def _add_references(writer: Writer, rows: Iterable[tuple[Any, ...]]) -> None:
    for message_id, stored, kind in rows:
        if has_references(stored, kind):
            for hash_ in find_hashes(stored):
                writer.run(REFER_IF_KNOWN, message_id, hash_)


def collect_batch(writer: Writer) -> Collected:
    """Delete the references of deleted messages, and up to `AT_ONCE` blobs that no message refers to, in the
    caller's transaction. Return the number and the size of the deleted blobs."""
    from hermes.store.values import Collected

    adopt_references(writer)
    writer.run(FORGET_DANGLING)
    sizes = [size for hash_, size in writer.rows(LOOSE, AT_ONCE) if writer.run(DROP, hash_)]
    return Collected(len(sizes), sum(sizes))


# -------------------------------------------------------------------- looking for damage


def find_damage(reader: Reader) -> list[str]:
    """Return one line of text for each attachment that is missing although a message refers to it, and for each
    blob whose bytes do not match its hash."""
    problems = [
        f"attachment {_format_hash(hash_)} of message {message_id} is missing"
        for message_id, hash_ in reader.rows(MISSING, MOST_TOLD)
    ]
    problems += [
        f"the bytes of attachment {_format_hash(hash_)} do not match its hash"
        for hash_, data in reader.each(EVERY)
        if not is_whole(hash_, data)
    ]
    return problems


def find_drift(reader: Reader) -> list[str]:
    """Return one line of text with the number of blobs that `collect` would remove, and one with the number of
    references. A number of zero has no line, so the list is empty if `collect` would remove nothing."""
    problems = []
    if loose := reader.value(COUNT_LOOSE):
        problems.append(f"{format_count(loose, 'attachment')} of deleted messages")
    if dangling := reader.value(COUNT_DANGLING):
        problems.append(f"{format_count(dangling, 'reference')} of deleted messages to attachments")
    return problems


def _format_hash(hash_: object) -> str:
    """Return the first 12 hexadecimal digits of the hash of a blob, for a message to a person. A damaged
    database can contain a value of any type in place of a hash; then return the beginning of its `repr`."""
    return hash_.hex()[:12] if isinstance(hash_, bytes) else repr(hash_)[:12]


def is_whole(hash_: object, data: object) -> bool:
    return isinstance(data, bytes) and compute_hash(data) == hash_
