-- The message index: contentless, unstemmed, for exact sets. Derived entirely from `messages`, so it may be dropped
-- and rebuilt at any time. Of ASCII the tokenizer makes the terms that hermes.terms would; everything else it is given
-- as terms, already folded and split, joined by spaces, and takes as it is.
CREATE VIRTUAL TABLE messages_fts_words USING fts5(
    words,
    parts,
    content='',
    contentless_delete=1,
    detail=full,
    tokenize="ascii"
);
-- Deleting only marks entries; they are taken out when segments merge, and all of them by vacuum, optimize and purge.
-- Merging for their sake on the deleting path made pruning three times as slow.
INSERT INTO messages_fts_words (messages_fts_words, rank) VALUES ('deletemerge', 0);
-- FTS5's own merging counts every deleted row as a page written: deleting 500 messages of 300,000 merged 10 MB, in the
-- caller's transaction. The index merges a bounded number of pages with each batch instead.
INSERT INTO messages_fts_words (messages_fts_words, rank) VALUES ('automerge', 0);
-- How far the index has followed `messages` (name 'messages'), and the form of the terms in it ('terms').
CREATE TABLE IF NOT EXISTS index_progress (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO index_progress VALUES ('messages', 0), ('terms', 1);
