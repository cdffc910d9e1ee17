"""Reports about the store: cost of model calls, activity since a time, counts and sizes.

Owns the usage rows (`model_usage`) and their sums in columns of the session. May import `store.sessions`.
"""
