"""Tests of tests/cli for the SQLite engine only; see CONTRIBUTING.md."""
