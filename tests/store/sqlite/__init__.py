"""Tests of the SQLite engine: its file, its index, its copies, and damage to them."""
