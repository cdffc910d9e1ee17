"""Thinning: shortening of large tool output in unused conversations to its beginning and end.

The message, its id, its position and its tool call stay. Conversations that are pinned, leased or in the
trash are not thinned, nor are messages that another conversation carries. A message is thinned only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hermes import clock
from hermes.message_content import read_text
from hermes.store import derived
from hermes.store.arguments import check_integer
from hermes.store.content import decode
from hermes.store.engine import Engine, Reader, Writer
from hermes.store.retention.deletion import IS_UNUSED, LEASED, compute_cutoff, is_open_in_process
from hermes.store.sessions import blobs

KEPT_CHARACTERS = 400
"""The number of characters that are kept at the beginning, and at the end, of a shortened output."""
BODIES_AT_ONCE, BYTES_AT_ONCE = 100, 4_000_000
"""The most messages and bytes that one transaction rewrites. The limits keep waits for the write lock
short."""

UNUSED = """SELECT id FROM sessions WHERE root_id = id AND coalesce(conversation_active, started_at) <= ?
    ORDER BY conversation_active NULLS FIRST, id"""
KEPT = (
    "SELECT 1 FROM sessions WHERE root_id = ? AND (pinned_at IS NOT NULL OR trashed_at IS NOT NULL) LIMIT 1"
)
# `octet_length` is used because `length` stops at the NUL with which structured content begins. It reads only
# the size, not the text. The size of attachments is added, because they are deleted with the content unless
# another message refers to them.
LARGE = """SELECT id, size FROM (
        SELECT m.id, octet_length(m.content) + coalesce((SELECT sum(b.size) FROM blob_refs r
            JOIN blobs b ON b.hash = r.hash WHERE r.message_id = m.id), 0) AS size
        FROM sessions s JOIN messages m ON m.session_id = s.id
        WHERE s.root_id = ? AND m.role = 'tool' AND m.thinned_bytes IS NULL
        AND NOT EXISTS (SELECT 1 FROM carried_context c JOIN sessions t ON t.id = c.session_id
            WHERE c.first_message_id <= m.id AND c.last_message_id >= m.id AND t.root_id <> s.root_id)) bodies
    WHERE size > ? ORDER BY id"""
SHOWN = "SELECT hash FROM blob_refs WHERE message_id = ?"
BODY = "SELECT session_id, content, content_kind FROM messages WHERE id = ?"
REWRITE = "UPDATE messages SET content = ?, content_kind = 'text', thinned_bytes = ? WHERE id = ?"


class Thinned(NamedTuple):
    messages: int
    bytes: int
    """Bytes removed from the messages. The notes that were inserted in their place are not subtracted."""
    sessions: int


class _Cut(NamedTuple):
    message_id: int
    session_id: str
    text: str
    dropped: int


class _Run(NamedTuple):
    """The parameters of one call of `thin`."""

    cutoff: float
    larger_than: int
    now: float
    spare_running: bool


Batch = dict[str, set[int]]
"""Candidate messages for one transaction, by the root of their conversation."""


class Thinner:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def thin(
        self,
        older_than_days: float = 30,
        larger_than: int = 16_384,
        dry_run: bool = False,
        *,
        spare_running: bool = False,
    ) -> Thinned:
        """Shorten tool output of more than `larger_than` bytes in conversations that were not used for
        `older_than_days`. Return the numbers of shortened messages, removed bytes and changed sessions. With
        `dry_run`, change nothing and return the numbers that are expected.

        With `spare_running`, skip conversations with an open terminal session whose process may be running.
        """
        run = _Run(
            compute_cutoff(older_than_days),
            check_integer("larger_than", larger_than),
            clock.now(),
            spare_running,
        )
        with self._engine.read(settled=True) as reader:
            roots = [row[0] for row in reader.rows(UNUSED, run.cutoff)]
        messages = dropped = 0
        sessions: set[str] = set()
        for batch in self._find_batches(roots, run):
            for cut in self._preview_cuts(batch, run) if dry_run else self._rewrite_batch(batch, run):
                messages, dropped = messages + 1, dropped + cut.dropped
                sessions.add(cut.session_id)
        return Thinned(messages, dropped, len(sessions))

    def _find_batches(self, roots: list[str], run: _Run) -> Iterator[Batch]:
        batch: Batch = {}
        bodies = size = 0
        for root in roots:
            with self._engine.read() as reader:
                large = _find_large(reader, root, run)
            for message_id, octets in large:
                if bodies == BODIES_AT_ONCE or (bodies and size + octets > BYTES_AT_ONCE):
                    yield batch
                    batch, bodies, size = {}, 0, 0
                batch.setdefault(root, set()).add(message_id)
                bodies, size = bodies + 1, size + octets
        if batch:
            yield batch

    def _preview_cuts(self, batch: Batch, run: _Run) -> list[_Cut]:
        with self._engine.read(settled=True) as reader:
            return list(_find_cuts(reader, batch, run))

    def _rewrite_batch(self, batch: Batch, run: _Run) -> list[_Cut]:
        applied: list[_Cut] = []

        def work(writer: Writer) -> list[_Cut]:
            derived.settle(writer)  # apply changes of other programs first
            fresh = list(_find_cuts(writer, batch, run))
            for cut in fresh:
                hashes = [row[0] for row in writer.rows(SHOWN, cut.message_id)]
                writer.run(REWRITE, cut.text, cut.dropped, cut.message_id)
                blobs.detach_blobs(writer, cut.message_id)
                blobs.drop_unused(writer, hashes)
            derived.refresh(writer)
            # A repeated attempt does not find messages that were already cut.
            if fresh or not writer.repeating:
                applied[:] = fresh
            return applied

        return self._engine.write(work, share=False)


def _find_large(reader: Reader, root: str, run: _Run) -> list[tuple[int, int]]:
    """Return (message id, size in bytes) of the tool outputs that can be shortened now, in the conversation
    whose first session is `root`. The list is empty if the conversation was used recently or must not be
    changed."""
    unused = reader.value(IS_UNUSED, root, run.cutoff) and not reader.value(KEPT, root)
    if not unused or reader.value(LEASED, root, run.now):
        return []
    if run.spare_running and is_open_in_process(reader, root):
        return []
    return [(message_id, octets) for message_id, octets in reader.rows(LARGE, root, run.larger_than)]


def _find_cuts(reader: Reader, batch: Batch, run: _Run) -> Iterator[_Cut]:
    for root, message_ids in batch.items():
        for message_id, octets in _find_large(reader, root, run):
            cut = _make_cut(reader, message_id, octets, run) if message_id in message_ids else None
            if cut is not None:
                yield cut


def _make_cut(reader: Reader, message_id: int, octets: int, run: _Run) -> _Cut | None:
    """Return the shortened form of a tool output of `octets` bytes. None if it would not become smaller."""
    row = reader.row(BODY, message_id)
    assert row is not None
    session_id, content, kind = row
    text = read_text(decode(content, kind))
    parts = [text] if len(text) <= 2 * KEPT_CHARACTERS else [text[:KEPT_CHARACTERS], text[-KEPT_CHARACTERS:]]
    dropped = octets - sum(len(part.encode()) for part in parts)
    parts.insert(1, f"[… {dropped:,} bytes of tool output dropped on {clock.format_day(run.now)} …]")
    shortened = "\n".join(parts)
    return _Cut(message_id, session_id, shortened, dropped) if len(shortened.encode()) < octets else None
