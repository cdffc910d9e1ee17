"""Copies of a store: page copies with SQLite's backup API, backups, and the files that belong to a store.

Owns the names of backups and how many are kept. Migrations import it to make a backup first. It imports no
transactions.
"""
