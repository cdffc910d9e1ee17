"""Slash commands, each once for every surface. A command gets a `CommandContext` and its words, and returns data.

The terminal (`chat.commands`) and chat platforms (`gateway.commands`) render that data.
"""
