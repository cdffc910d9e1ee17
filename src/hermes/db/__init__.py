"""Public handles: `SessionDB` for the whole store and `ScopedStore` for one person.

Owns the public verbs. Each verb calls a manager in `store`, such as the one for sessions or messages,
or a search in `recall`. Imports no agent and no surface.
"""
