"""The tests of recall that apply to the SQLite engine only. See CONTRIBUTING.md."""
