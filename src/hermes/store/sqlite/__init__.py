"""The SQLite engine: the only package that knows apsw.

Owns connections, transactions, group commit, opening and the files of the store. Implements `store.engine`; it may
import managers for the SQL of their tables, and no manager imports it. The order of its rooms is in pyproject.toml.
"""
