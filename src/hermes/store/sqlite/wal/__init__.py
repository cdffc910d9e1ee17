"""The write-ahead log: the guard of its files, its lock, its index (`-shm`), and recovery after its removal.

Owns the checks that detect when SQLite would lose an acknowledged commit without an error. Opens no SQLite
connection, and does not import the modules that do.
"""
