"""Store: sessions, messages and all data derived from them.

Owns the interface to database engines (`engine`), its value types, and one manager for each kind of data in
the folders below. Imports `config` and foundations only; it does not import recall, the agent or a surface.
"""
