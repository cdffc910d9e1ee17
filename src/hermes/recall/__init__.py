"""Recall: finding messages and conversations by what was said.

Owns the query languages, ranking, snippets and the agent's `session_search` tool. Reads through the seam, writes
nothing; imports no agent and no surface.
"""
