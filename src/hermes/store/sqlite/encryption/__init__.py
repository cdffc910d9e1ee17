"""Encryption at rest: which files are encrypted, and where their keys come from.

Owns the note beside an encrypted file. `connection` imports it to find keys. It opens connections only to test
whether a file is readable, and imports no transactions.
"""
