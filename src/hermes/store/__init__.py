"""The stored truth: sessions and messages, and everything derived from them.

Owns the seam to database engines (`engine`), the values that cross it, and one manager per noun in the folders below.
Imports `config` and foundations; knows no search language, agent or surface.
"""
