"""Slash commands in a chat, one module per group, and their table.

A command gets a `CommandContext` and returns text.
"""
