"""Slash commands, each once for every surface. A command gets a `CommandContext` and its words, and returns data.

Owns what each command does. The terminal (`chat.commands`) and chat platforms (`gateway.commands`) render the data.
Imports the store's verbs, the agent and insights; no surface.
"""
