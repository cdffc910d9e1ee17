"""Tests of tests/interface for the SQLite engine alone; see CONTRIBUTING.md."""
