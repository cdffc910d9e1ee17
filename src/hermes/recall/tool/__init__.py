"""The `session_search` tool: its schema, its modes, the format of its answers, and prompt safety.

Owns bounded reading of conversations (`passages`) and fencing of foreign text. Imports no agent: a summariser is
passed in.
"""
