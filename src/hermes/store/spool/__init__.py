"""Spool: files for writes that the store cannot accept at the moment.

Owns `spool/*.jsonl` beside the store. May import `store.sessions`; its writer wraps an engine.
"""
