-- The terms of the message index, for `*part*`: each once, the most frequent first, with trigrams over them. Made when
-- the first part is searched, brought up to date by later ones, and thrown away by whatever rewrites the file. Its names
-- begin with that of the index because it is a piece of it: it is checked, repaired and left out with it.
CREATE TABLE IF NOT EXISTS messages_fts_words_terms (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE IF NOT EXISTS messages_fts_words_grams USING fts5(
    term,
    content='messages_fts_words_terms',
    content_rowid='id',
    detail=none,
    columnsize=0,
    tokenize='trigram case_sensitive 1'
);
-- Rows that were indexed anew since: their terms are not listed yet. `note` is the count of such rows up to this one.
CREATE TABLE IF NOT EXISTS messages_fts_words_edited (note INTEGER PRIMARY KEY, id INTEGER NOT NULL);
