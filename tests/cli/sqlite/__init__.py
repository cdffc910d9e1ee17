"""Tests of tests/cli for the SQLite engine alone; see CONTRIBUTING.md."""
