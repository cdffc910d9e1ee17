"""Snippets: the part of a text where a query matches best, cut between characters.

Owns marking of matches. Works on text only; of the store it imports the query
tree only.
"""
