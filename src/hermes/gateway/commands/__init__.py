"""Slash commands in a chat, one module per group, and their table.

Owns the commands' arguments and replies. A command gets a `CommandContext` and returns a `CommandReply`. Must not
import `inbound` (except for types) or a platform.
"""
