"""Reports about the store: cost of model calls, activity since a time, counts and sizes.

Owns the `usage` rows and their sums in the documented columns. May import `store.sessions`.
"""
