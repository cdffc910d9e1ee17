"""Full-text search: the index and its indexer, exact search, ranking candidates, and substring search.

Owns the FTS5 tables and the watermark. It does not parse queries: it compiles the tree of `store.query_tree`.
"""
