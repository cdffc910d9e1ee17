"""Encryption at rest: which files are encrypted, and where their keys come from.

Owns the note beside an encrypted file. `connection` imports it and asks it for keys; it opens no connection itself.
"""
