"""Slash commands in a chat: its own, the table of all, and the commands of every surface as Markdown.

Owns the commands' arguments and replies. A command gets a `ChatCommandContext` and returns a `CommandReply`. Must not
import `inbound` (except for types) or a platform.
"""
