"""Tests of tests/gateway for the SQLite engine alone; see CONTRIBUTING.md."""
