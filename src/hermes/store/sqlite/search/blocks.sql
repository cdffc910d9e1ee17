-- Blocks: a few neighbouring messages of one session as one text, stemmed, for ranking conversations. `said` is what
-- people said, and short answers; `long` is what others said at length. Derived entirely from `messages`, like the
-- message index, and fed with the same terms.
CREATE VIRTUAL TABLE messages_fts_blocks USING fts5(
    said,
    long,
    content='',
    contentless_delete=1,
    detail=full,
    tokenize="porter ascii"
);
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('rank', 'bm25(1.0, 0.4)');
-- For these see index.sql. Segments are merged by eights, not by fours: blocks are asked less often than messages.
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('usermerge', 8);
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('deletemerge', 0);
INSERT INTO messages_fts_blocks (messages_fts_blocks, rank) VALUES ('automerge', 0);
-- What a block holds: the messages of its session from `first_id` to `last_id`. Ranges of one session never overlap.
-- `waiting`: 0 if the index has it as it is; 1 while it still grows, and the index has an older state of it or none;
-- 2 if it is to be indexed next.
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
-- In which block a message is: when it is deleted or moves, nothing else tells.
CREATE TABLE messages_fts_members (message_id INTEGER PRIMARY KEY, block_id INTEGER NOT NULL);
INSERT OR REPLACE INTO index_progress VALUES ('blocks', 0);
