"""Tests of the SQLite engine: its file, its index, its copies, and what happens when they are damaged."""
