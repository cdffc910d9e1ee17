"""The spool: writes that the store could not take, kept in files until it can.

Owns `spool/*.jsonl` beside the store. May import `store.sessions`; its writer wraps an engine.
"""
