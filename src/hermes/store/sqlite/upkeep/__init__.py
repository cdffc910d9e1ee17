"""Upkeep of the database file: restore, verify, diagnosis, vacuum, conversion and readable copies.

Owns every operation that replaces one database file by another, except repair. Imports no erasure or repair.
"""
