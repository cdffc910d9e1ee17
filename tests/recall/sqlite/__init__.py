"""Tests of tests/recall for the SQLite engine alone; see CONTRIBUTING.md."""
