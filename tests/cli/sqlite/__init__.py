"""The tests of the command line that apply to the SQLite engine only. See CONTRIBUTING.md."""
