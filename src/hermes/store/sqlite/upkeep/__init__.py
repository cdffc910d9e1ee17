"""Upkeep of the file: restore, verify, diagnosis, vacuum, conversion and readable copies.

Owns every way in which one database file takes the place of another. Imports no erasure or repair.
"""
