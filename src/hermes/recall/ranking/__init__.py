"""Ranking of conversations for a question in plain words.

Owns question words, stop words, matched terms and the rows of a ranked result. Imports queries and snippets,
but no tool.
"""
