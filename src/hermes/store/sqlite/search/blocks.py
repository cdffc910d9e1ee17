"""Blocks: a few neighbouring messages of one session as one text, for ranking conversations.

A block takes messages until it is full, and is indexed then. One that is not full waits, for indexing it with every
message would cost many times as much: it is indexed when its session has been quiet for a while, or when somebody
ranks. A block of which a message was changed, moved or deleted is taken out of the index at once, in the transaction
that takes the message itself out, and made anew from the rows when its turn comes: nothing stale can be found, ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes.store.content import decode
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter
from hermes.store.sqlite.search.fts_input import distinct_words, split_tokens
from hermes.text import extract_text

MOST_CHARACTERS, MOST_MESSAGES = 6_000, 16
"""What fits into a block. A single message that is longer is a block of its own, and counts with its beginning."""
SHORT, PASTED = 400, 2_000
"""An answer up to the one, and what a person says up to the other, is `said`; what is longer is `long`."""
MOST_OF_TOOL = 400
"""Of what a tool printed, the beginning is enough to know a conversation by. All of it is in the message index."""
QUIET_AFTER = 500
"""So many messages later, wherever they were written, a block that did not fill up is indexed as it is."""
BYTES_AT_ONCE = 64_000

DONE, GROWING, DUE = 0, 1, 2
"""Of `waiting`. Statements say `waiting > 0` too: without it SQLite does not see that its index serves them."""

WATERMARK = "SELECT value FROM index_progress WHERE name = 'blocks'"
SET_WATERMARK = "UPDATE index_progress SET value = ? WHERE name = 'blocks'"
ROW = "SELECT block_id, session_id, first_id, last_id, size, count, waiting FROM messages_fts_ranges"
LAST_OF = " ".join((ROW, "WHERE session_id = ? ORDER BY first_id DESC LIMIT 1"))
AROUND = " ".join((ROW, "WHERE session_id = ? AND first_id <= ? ORDER BY first_id DESC LIMIT 1"))
FIRST_OF = " ".join((ROW, "WHERE session_id = ? ORDER BY first_id LIMIT 1"))
ALL_DUE = " ".join((ROW, "WHERE waiting > 0 AND waiting = 2 ORDER BY last_id LIMIT 64"))
ALL_QUIET = " ".join((ROW, "WHERE waiting > 0 AND waiting = 1 AND last_id < ? ORDER BY last_id LIMIT 16"))
ANY_DUE = "SELECT 1 FROM messages_fts_ranges WHERE waiting > 0 AND waiting = 2 LIMIT 1"
ANY_WAITING = "SELECT 1 FROM messages_fts_ranges WHERE waiting > 0 LIMIT 1"
HIGHEST = "SELECT coalesce(max(block_id), 0) FROM messages_fts_ranges"
SAVE = """INSERT INTO messages_fts_ranges (block_id, session_id, first_id, last_id, size, count, waiting)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (block_id) DO UPDATE SET first_id = excluded.first_id,
    last_id = excluded.last_id, size = excluded.size, count = excluded.count, waiting = excluded.waiting"""
FORGET = "DELETE FROM messages_fts_ranges WHERE block_id = ?"
MAKE_DUE = "UPDATE messages_fts_ranges SET waiting = 2 WHERE block_id = ?"
ENTER = """INSERT INTO messages_fts_members (message_id, block_id) VALUES (?, ?)
    ON CONFLICT (message_id) DO UPDATE SET block_id = excluded.block_id"""
BLOCK_OF = "SELECT block_id FROM messages_fts_members WHERE message_id = ?"
LEAVE = "DELETE FROM messages_fts_members WHERE message_id = ?"
HELD = """SELECT id, session_id, role, content, content_kind FROM messages
    WHERE session_id = ? AND id BETWEEN ? AND ? AND active = 1 ORDER BY id"""
PUT = "INSERT INTO messages_fts_blocks (rowid, said, long) VALUES (?, ?, ?)"
TAKE = "DELETE FROM messages_fts_blocks WHERE rowid = ?"
TAKE_OF_SESSION = """DELETE FROM messages_fts_blocks WHERE rowid IN
    (SELECT block_id FROM messages_fts_ranges WHERE session_id = ?)"""
# Messages that another program has just moved into a session are still in blocks of the one they came from.
STRANGERS = """SELECT DISTINCT r.block_id FROM messages m JOIN messages_fts_members e ON e.message_id = m.id
    JOIN messages_fts_ranges r ON r.block_id = e.block_id WHERE m.session_id = ? AND r.session_id <> m.session_id"""
FORGET_OF_SESSION = "DELETE FROM messages_fts_ranges WHERE session_id = ?"
MERGE = "INSERT INTO messages_fts_blocks (messages_fts_blocks) VALUES ('optimize')"
MERGE_SOME = "INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('merge', ?)"
PAGES_MERGED_AT_LEAST, BYTES_PER_PAGE_MERGED = 8, 1024


class Piece:
    """What one message gives to its block."""

    __slots__ = ("long", "message_id", "session_id", "size", "words")

    def __init__(self, message_id: int, session_id: str, role: str, text: str, words: str | None) -> None:
        """`words` if they are known already; they are made anew where the message is too long for a block.

        A log repeats its words without end, pasted or printed: each of them counts once.
        """
        printed = role == "tool"
        pasted = role == "user" and len(text) > PASTED
        most = MOST_OF_TOOL if printed else MOST_CHARACTERS
        self.message_id = message_id
        self.session_id = session_id
        self.long = printed or pasted or (role != "user" and len(text) > SHORT)
        self.size = min(len(text), most)
        if printed or pasted:
            self.words = distinct_words(text[:most])
        else:
            self.words = split_tokens(text[:most])[0] if words is None or len(text) > most else words


class Block:
    """A row of `messages_fts_ranges`, and its pieces as far as they are at hand."""

    __slots__ = ("count", "first", "id", "last", "pieces", "session_id", "size", "waiting")

    def __init__(
        self, block_id: int, session_id: str, first: int, last: int, size: int, count: int, waiting: int
    ) -> None:
        self.id, self.session_id = block_id, session_id
        self.first, self.last = first, last
        self.size, self.count, self.waiting = size, count, waiting
        self.pieces: list[Piece] | None = None

    def takes(self, piece: Piece) -> bool:
        return self.count < MOST_MESSAGES and self.size + piece.size <= MOST_CHARACTERS

    def add(self, piece: Piece) -> None:
        self.last = piece.message_id
        self.size += piece.size
        self.count += 1
        self.waiting = GROWING
        if self.pieces is not None:
            self.pieces.append(piece)

    def row(self) -> tuple[Any, ...]:
        return (self.id, self.session_id, self.first, self.last, self.size, self.count, self.waiting)


class Batch:
    """The blocks that one transaction changes."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._newest: dict[str, Block | None] = {}
        self._full: list[Block] = []
        self._members: list[tuple[int, int]] = []
        self._next = 0
        self._indexed = 0

    # ---------------------------------------------------------------- taking messages in and out

    def add(self, piece: Piece) -> None:
        """A message that comes after all others of its session."""
        block = self._newest[piece.session_id] if piece.session_id in self._newest else self._last(piece)
        if block is None or not block.takes(piece):
            if block is not None and block.waiting:
                block.waiting = DUE
                self._full.append(block)
            block = self._new(piece.session_id, piece.message_id)
        block.add(piece)
        self._newest[piece.session_id] = block
        self._members.append((piece.message_id, block.id))

    def take_out(self, message_id: int) -> None:
        """A message that was changed, moved or deleted: nothing of its block may be found until it is made anew."""
        block_id = self._writer.value(BLOCK_OF, message_id)
        if block_id is not None:
            self._writer.run(LEAVE, message_id)
            self._writer.run(TAKE, block_id)
            self._writer.run(MAKE_DUE, block_id)

    def put_back(self, message_id: int, session_id: str) -> None:
        """A changed message as it is now, somewhere in its session."""
        row = self._writer.row(AROUND, session_id, message_id) or self._writer.row(FIRST_OF, session_id)
        block = self._new(session_id, message_id) if row is None else Block(*row)
        block.first, block.last = min(block.first, message_id), max(block.last, message_id)
        block.waiting = DUE
        self._writer.run(TAKE, block.id)
        self._writer.run(SAVE, *block.row())
        self._writer.run(ENTER, message_id, block.id)

    def _last(self, piece: Piece) -> Block | None:
        row = self._writer.row(LAST_OF, piece.session_id)
        return None if row is None else Block(*row)

    def _new(self, session_id: str, first: int) -> Block:
        self._next = (self._next or int(self._writer.value(HIGHEST))) + 1
        block = Block(self._next, session_id, first, first, 0, 0, GROWING)
        block.pieces = []
        return block

    # ---------------------------------------------------------------- indexing

    def finish(self, quiet_before: int) -> bool:
        """Write everything down and index what is due, or quiet, as far as time allows; whether more is due."""
        self._save([*self._full, *(block for block in self._newest.values() if block is not None)])
        for block in self._full:
            self._index(block)
        room = BYTES_AT_ONCE - self._indexed
        for row in (*self._writer.rows(ALL_DUE), *self._writer.rows(ALL_QUIET, quiet_before)):
            if room <= 0:
                break
            before = self._indexed
            self._index(Block(*row))
            room -= self._indexed - before
        if self._indexed:
            self._writer.run(MERGE_SOME, PAGES_MERGED_AT_LEAST + self._indexed // BYTES_PER_PAGE_MERGED)
        return self._writer.value(ANY_DUE) is not None

    def _save(self, blocks: Iterable[Block]) -> None:
        self._writer.many(SAVE, [block.row() for block in blocks])
        self._writer.many(ENTER, self._members)
        self._members.clear()

    def _index(self, block: Block) -> None:
        """Make a block from its messages. If it has come to hold too many, as when a session inherited some, the rest
        goes into new ones."""
        pieces = block.pieces if block.pieces is not None else pieces_of(self._writer, block)
        self._writer.run(TAKE, block.id)
        if not pieces:
            self._writer.run(FORGET, block.id)
            return
        for made in self._chunks(block, pieces):
            text, long = texts_of(made.pieces or [])
            self._writer.run(PUT, made.id, text, long)
            self._indexed += len(text) + len(long)
            made.waiting = DONE
            self._save([made])

    def _chunks(self, block: Block, pieces: list[Piece]) -> list[Block]:
        block.size = block.count = 0
        block.pieces = []
        made = [block]
        for piece in pieces:
            if made[-1].count and not made[-1].takes(piece):
                made.append(self._new(block.session_id, piece.message_id))
            made[-1].add(piece)
            if len(made) > 1:
                self._members.append((piece.message_id, made[-1].id))
        return made


def pieces_of(reader: SqliteReader, block: Block) -> list[Piece]:
    """What the messages of a block give to it as they are now."""
    found = []
    for message_id, session_id, role, content, kind in reader.rows(
        HELD, block.session_id, block.first, block.last
    ):
        if text := extract_text(decode(content, kind)):
            found.append(Piece(message_id, session_id, role, text, None))
    return found


def texts_of(pieces: Iterable[Piece]) -> tuple[str, str]:
    """What is said in a block, and what is told at length."""
    several = list(pieces)
    return (
        " ".join([piece.words for piece in several if piece.words and not piece.long]),
        " ".join([piece.words for piece in several if piece.words and piece.long]),
    )


def delete_session(writer: SqliteWriter, session_id: str, messages: list[tuple[int]]) -> None:
    """Forget the blocks of a session whose messages are about to be deleted."""
    for (block_id,) in writer.rows(STRANGERS, session_id):
        writer.run(TAKE, block_id)
        writer.run(MAKE_DUE, block_id)
    writer.run(TAKE_OF_SESSION, session_id)
    writer.run(FORGET_OF_SESSION, session_id)
    writer.many(LEAVE, messages)


def settle(writer: SqliteWriter) -> bool:
    """Index blocks that still grow, too: somebody ranks. True if more is waiting."""
    Batch(writer).finish(1 << 62)
    return writer.value(ANY_WAITING) is not None


def is_behind(reader: SqliteReader, mark: int) -> bool:
    """Whether the message index, which is at `mark`, is ahead of the blocks, or some of them are due."""
    return int(reader.value(WATERMARK) or 0) < mark or reader.value(ANY_DUE) is not None
