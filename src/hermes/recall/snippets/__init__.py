"""Snippets: the part of a text where a query matches best, cut between characters.

Owns the marking of matches. Works on text only. Of the store it imports only the query tree.
"""
