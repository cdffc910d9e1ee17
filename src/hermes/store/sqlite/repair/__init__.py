"""Repair of a damaged store: read the remaining data page by page, and rebuild a store from it.

Owns the defensive reader of SQLite's file format. Imports upkeep. Only the engine and erasure import it.
"""
