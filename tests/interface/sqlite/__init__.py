"""Tests of tests/interface for the SQLite engine only; see CONTRIBUTING.md."""
