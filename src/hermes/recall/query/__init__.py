"""Query languages: the documented operators, the prompt's fields and dates, checked arguments.

Owns the way from typed text to the tree of `store.query_tree`. Imports no search.
"""
