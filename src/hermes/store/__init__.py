"""Store: sessions, messages and all data derived from them.

Owns the interface to database engines (`engine`), its value types, and one manager per noun in the folders
below. Imports `config` and foundations only; it does not import the search language, the agent or a surface.
"""
