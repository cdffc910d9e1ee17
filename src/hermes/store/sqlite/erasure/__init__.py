"""Purge and scrub at the level of files: they remove deleted text from every copy of the store.

Owns the search for copies of a store below its folder, and for rows with a secret. Imports upkeep and repair. Only
the engine imports it.
"""
