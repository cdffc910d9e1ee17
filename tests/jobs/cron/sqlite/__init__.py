"""Tests of scheduled jobs that need the file of an SQLite store."""
