-- Blocks: neighbouring messages of one session, joined into one stemmed text for ranking conversations. `said` holds
-- messages of people and short answers; `long` holds longer texts. Derived entirely from `messages`, like the message
-- index, and filled with the same terms.
CREATE VIRTUAL TABLE messages_fts_blocks USING fts5(
    said,
    long,
    content='',
    contentless_delete=1,
    detail=full,
    tokenize="porter ascii"
);
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('rank', 'bm25(1.0, 0.4)');
-- These settings are explained in index.sql. Eight segments are merged at a time, not four, because blocks are searched
-- less often than messages.
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('usermerge', 8);
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('deletemerge', 0);
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('automerge', 0);
-- The content of a block: the messages of its session from `first_id` to `last_id`. Ranges of one session never overlap.
-- `waiting` is 0 if the block is indexed in its current state, 1 while it grows (the index has an older state or none),
-- and 2 if it is to be indexed next.
CREATE TABLE messages_fts_ranges (
    block_id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    size INTEGER NOT NULL,
    count INTEGER NOT NULL,
    waiting INTEGER NOT NULL
);
CREATE INDEX messages_fts_ranges_order ON messages_fts_ranges(session_id, first_id);
CREATE INDEX messages_fts_ranges_waiting ON messages_fts_ranges(waiting, last_id) WHERE waiting > 0;
-- The block of each message. After a message was deleted or moved, its block cannot be found in any other way.
CREATE TABLE messages_fts_members (message_id INTEGER PRIMARY KEY, block_id INTEGER NOT NULL);
INSERT OR REPLACE INTO index_progress VALUES ('blocks', 0);
