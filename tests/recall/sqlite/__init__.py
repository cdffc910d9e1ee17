"""Tests of tests/recall for the SQLite engine only; see CONTRIBUTING.md."""
