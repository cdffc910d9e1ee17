"""Purge and scrub at the level of files: deleted text leaves every copy of the store.

Owns the search for copies of a store below its folder, and rows that hold a secret. Imports upkeep and repair; only
the engine imports it.
"""
