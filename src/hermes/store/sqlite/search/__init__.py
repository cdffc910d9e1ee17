"""Full-text search: the index and its indexer, exact search, ranking candidates, and substring search.

Owns the FTS5 tables and the watermark, which is the id up to which messages are indexed. Imports no query
language: it compiles the tree of `store.query_tree`.
"""
