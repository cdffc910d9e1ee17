"""The tests of the gateway that apply to the SQLite engine only. See CONTRIBUTING.md."""
