"""The write-ahead log: its guard, its lock, its index, and recovery after it was removed or replaced.

Owns the checks that keep an acknowledged commit from being lost behind SQLite's back. Opens no connection itself, and
imports none of what does.
"""
