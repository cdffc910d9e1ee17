"""Recall: search for messages and conversations by their text.

Owns the query languages, ranking, snippets and the agent's `session_search` tool. Reads through the store's
engine interface and writes nothing. Imports no agent and no surface.
"""
