"""Full-text search: the index and the indexer behind it, exact search, candidates and substrings.

Owns the FTS5 tables and the watermark. Imports no query language: it compiles the tree of `store.query_tree`.
"""
