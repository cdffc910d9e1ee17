-- The message index: contentless, unstemmed, for exact sets. Derived entirely from `messages`, so it may be dropped
-- and rebuilt at any time. It is fed with text that hermes.terms has folded and split, joined by spaces; every ASCII
-- mark is declared a token character so that FTS5 splits at the spaces and nowhere else.
CREATE VIRTUAL TABLE messages_fts_words USING fts5(
    words,
    parts,
    content='',
    contentless_delete=1,
    detail=full,
    tokenize="ascii tokenchars '!""#$%&''()*+,-./:;<=>?@[\]^_`{|}~'"
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
