"""Repair of a damaged store: read what is left page by page, and rebuild a store from it.

Owns the defensive reader of SQLite's file format. Imports upkeep; only the engine and
erasure import it.
"""
