"""Tests of tests/gateway for the SQLite engine only; see CONTRIBUTING.md."""
