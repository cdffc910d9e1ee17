"""Snippets: the part of a text where a query matches best, cut between characters.

Owns the marking of matches. Works on text only, and imports nothing from the store except the query tree.
"""
