"""The conversation in a terminal.

Owns the loop at the prompt and the one-shot question. Imports the agent and the handles; no other surface imports it.
"""
