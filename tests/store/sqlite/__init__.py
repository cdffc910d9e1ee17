"""Tests of the SQLite engine: its file, its index and its copies, and damage to them."""
