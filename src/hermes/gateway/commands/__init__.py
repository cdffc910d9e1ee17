"""Slash commands in a chat, one module per group, and their table.

A command gets a `CommandContext` and returns a `CommandReply`. Must not import `inbound` or a platform.
"""
