-- The message index: contentless and unstemmed, for exact matches. Derived entirely from `messages`, so it can be
-- dropped and rebuilt at any time. From ASCII text the tokenizer makes the same terms as hermes.terms. Other text is
-- folded and split before, and stored as terms joined by spaces.
CREATE VIRTUAL TABLE messages_fts_words USING fts5(
    words,
    parts,
    content='',
    contentless_delete=1,
    detail=full,
    tokenize="ascii"
);
-- A deletion only marks entries. They are removed when segments are merged, and all of them by vacuum, optimize and
-- purge. Merging during the deletion made pruning three times as slow.
INSERT INTO messages_fts_words (messages_fts_words, rank) VALUES ('deletemerge', 0);
-- FTS5's automatic merge counts every deleted row as a written page: deleting 500 of 300,000 messages merged 10 MB in
-- the caller's transaction. Instead, the indexer merges a bounded number of pages with each batch.
INSERT INTO messages_fts_words (messages_fts_words, rank) VALUES ('automerge', 0);
-- The watermark of the index in `messages` (name 'messages'), and the format of its terms (name 'terms').
CREATE TABLE IF NOT EXISTS index_progress (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO index_progress VALUES ('messages', 0), ('terms', 1);
