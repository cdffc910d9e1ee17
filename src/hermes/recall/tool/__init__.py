"""The `session_search` tool: its schema, its modes, the format of its answers, and prompt safety.

Owns bounded reading of conversations (`passages`) and the quoting of foreign text. Imports no agent; for
summaries, the caller passes a summariser.
"""
