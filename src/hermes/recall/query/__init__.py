"""Query languages: the operators of the reference, the fields and dates of the prompt language, argument
checks.

Owns the parsing of typed text into the tree of `store.query_tree`. Imports no search.
"""
