"""The SQLite engine: the only package that imports apsw.

Owns connections, transactions, group commit, opening and the files of the store. Implements `store.engine`.
It may import managers for the SQL of their tables; no manager imports it. pyproject.toml declares which of
its subpackages may import which.
"""
