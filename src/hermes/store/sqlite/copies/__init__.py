"""Copies of a store: pages copied through SQLite's backup interface, backups, and the files that belong to a store.

Owns the names of backups and how many are kept. Migrations import it and make a backup first; it imports no
transactions.
"""
