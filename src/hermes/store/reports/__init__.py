"""Figures about the store: cost per model call, activity in a span of time, counts and sizes.

Owns the `usage` rows and their sums in the documented columns. May import `store.sessions`.
"""
