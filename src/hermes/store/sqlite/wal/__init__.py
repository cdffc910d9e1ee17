"""The write-ahead log: checkpoints, its index, and recovery after it was removed or replaced.

Owns the checks that keep an acknowledged commit from being lost behind SQLite's back. Imports connections only.
"""
