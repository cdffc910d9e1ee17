"""Query languages: the documented operators, the fields and dates of the prompt language, argument checks.

Owns the parsing of typed text into the tree of `store.query_tree`. Imports no search.
"""
