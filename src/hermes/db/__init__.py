"""Public handles: `SessionDB` for the whole store and `ScopedStore` for one person.

Owns the documented methods. Each calls the manager of its noun in `store`, or a search in `recall`. Imports
no agent and no surface.
"""
