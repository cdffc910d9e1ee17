"""The tests of the documented interface that apply to the SQLite engine only. See CONTRIBUTING.md."""
