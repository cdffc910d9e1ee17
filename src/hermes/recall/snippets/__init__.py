"""Snippets: the part of a text where a query matches best, cut between characters.

Owns marking of matches. Works on text only; reads no store.
"""
