-- The terms of the message index for `*part*` queries, the most frequent first, with a trigram index over them. Created
-- by the first such query, updated by later ones, and deleted by every operation that rewrites the file. The names begin
-- with the name of the message index, because these tables are checked, repaired and excluded together with it.
CREATE TABLE IF NOT EXISTS messages_fts_words_terms (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts_words_grams USING fts5(
    term,
    content='messages_fts_words_terms',
    content_rowid='id',
    detail=none,
    columnsize=0,
    tokenize='trigram case_sensitive 1'
);
-- Rows that were indexed again since the list was made: their terms are not listed yet. `note` is a running number.
CREATE TABLE IF NOT EXISTS messages_fts_words_edited (note INTEGER PRIMARY KEY, id INTEGER NOT NULL);
