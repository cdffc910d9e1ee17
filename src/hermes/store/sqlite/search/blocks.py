"""Blocks: neighbouring messages of one session, joined into one text for ranking conversations.

Messages are added to a block until it is full; then it is indexed. Indexing an unfinished block again with
every message would cost many times as much. So an unfinished block is indexed only when its session has been
quiet for a while, or when a ranked search needs it.

When a message of a block is changed, moved or deleted, one transaction removes both the message and its block
from the index, so a search never finds outdated text. The block is rebuilt later from the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes.store.content import decode
from hermes.store.sqlite.connection import SqliteReader, SqliteWriter
from hermes.store.sqlite.search.fts_input import distinct_words, split_tokens
from hermes.text import extract_searchable_text

MOST_CHARACTERS, MOST_MESSAGES = 6_000, 16
"""The maximum number of characters and of messages in a block.

A longer message gets a block of its own, and only the beginning of the message is indexed in it.
"""
SHORT, PASTED = 400, 2_000
"""The maximum length, in characters, of a message that goes into the column `said`: PASTED for messages of the
user, SHORT for other messages.

Longer messages, and all tool results, go into the column `long`.
"""
MOST_OF_TOOL = 400
"""How many characters of a tool result are indexed in a block.

The message index contains the whole result.
"""
QUIET_AFTER = 500
"""An unfinished block is indexed once this many messages, of any session, were stored after it."""
BYTES_AT_ONCE = 64_000

DONE, GROWING, DUE = 0, 1, 2
"""The values of the column `waiting`: the block is indexed, it can still grow, or it must be indexed now.

Statements include the condition `waiting > 0`, because SQLite needs it to use the partial SQL index.
"""

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
# Messages that another program has just moved into a session are still in blocks of their previous session.
STRANGERS = """SELECT DISTINCT r.block_id FROM messages m JOIN messages_fts_members e ON e.message_id = m.id
    JOIN messages_fts_ranges r ON r.block_id = e.block_id WHERE m.session_id = ? AND r.session_id <> m.session_id"""
FORGET_OF_SESSION = "DELETE FROM messages_fts_ranges WHERE session_id = ?"
MERGE = "INSERT INTO messages_fts_blocks (messages_fts_blocks) VALUES ('optimize')"
MERGE_SOME = "INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('merge', ?)"
PAGES_MERGED_AT_LEAST, BYTES_PER_PAGE_MERGED = 8, 1024


class Piece:
    """The searchable text of one message, as a part of the block to which the message belongs."""

    __slots__ = ("long", "message_id", "session_id", "size", "words")

    def __init__(self, message_id: int, session_id: str, role: str, text: str, words: str | None) -> None:
        """Make the piece of one message from its role and its searchable text. `words` are the tokens of `text`, or
        None if the caller has not split the text.

        In tool results and pasted texts, each word counts once, because logs repeat the same words many times.
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
    """A row of the table `messages_fts_ranges`, which describes one block: its session, its messages, and whether it
    waits to be indexed. `pieces` are the texts of its messages, or None if they are not loaded.
    """

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

    # ---------------------------------------------------------------- adding and removing messages

    def add(self, piece: Piece) -> None:
        """Add the piece of a message to the last block of its session, or to a new block if that one is full.

        The message must be newer than all messages of its session that are already in blocks.
        """
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
        """Remove the block that contains the message `message_id` from the index, because the message was changed,
        moved or deleted. The block is marked as due, so that it is rebuilt later without the message.
        """
        block_id = self._writer.value(BLOCK_OF, message_id)
        if block_id is not None:
            self._writer.run(LEAVE, message_id)
            self._writer.run(TAKE, block_id)
            self._writer.run(MAKE_DUE, block_id)

    def put_back(self, message_id: int, session_id: str) -> None:
        """Assign a message that `take_out` removed to the block at its position in the session. This block is marked
        as due, so that it is rebuilt later with the current text of the message.
        """
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
        """Save all changes of this batch. Then index the blocks that are due, and the unfinished blocks whose last
        message has an id below `quiet_before`. Such a block has got no message for a while. Stop at a size limit.

        Return whether further blocks are due.
        """
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
        """Replace the index entry of a block by one made from its current messages. If it has no messages any more,
        delete the block.

        If the messages no longer fit into one block, the rest is put into new blocks. This happens, for example,
        after messages were moved into the session.
        """
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
    """Read the messages of a block and return a `Piece` for each of them that has searchable text."""
    found = []
    for message_id, session_id, role, content, kind in reader.rows(
        HELD, block.session_id, block.first, block.last
    ):
        if text := extract_searchable_text(decode(content, kind)):
            found.append(Piece(message_id, session_id, role, text, None))
    return found


def texts_of(pieces: Iterable[Piece]) -> tuple[str, str]:
    """Join the pieces of one block into two texts, for the columns `said` and `long` of the block index.

    The second text is made from tool results, pasted texts and long answers, the first one from all other pieces.
    """
    several = list(pieces)
    return (
        " ".join([piece.words for piece in several if piece.words and not piece.long]),
        " ".join([piece.words for piece in several if piece.words and piece.long]),
    )


def delete_session(writer: SqliteWriter, session_id: str, messages: list[tuple[int]]) -> None:
    """Delete the blocks of a session whose messages are about to be deleted."""
    for (block_id,) in writer.rows(STRANGERS, session_id):
        writer.run(TAKE, block_id)
        writer.run(MAKE_DUE, block_id)
    writer.run(TAKE_OF_SESSION, session_id)
    writer.run(FORGET_OF_SESSION, session_id)
    writer.many(LEAVE, messages)


def settle(writer: SqliteWriter) -> bool:
    """Index the blocks that wait to be indexed, including unfinished ones, up to a size limit. Call this before a
    ranked search.

    Return whether further blocks are waiting.
    """
    Batch(writer).finish(1 << 62)
    return writer.value(ANY_WAITING) is not None


def is_behind(reader: SqliteReader, mark: int) -> bool:
    """Return whether some blocks must be indexed: messages up to the id `mark` are not in blocks yet, or a block is
    due.

    `mark` is the watermark of the message index.
    """
    return int(reader.value(WATERMARK) or 0) < mark or reader.value(ANY_DUE) is not None
