"""Slash commands in chats: the table of all commands, the commands that only chats have, and the format of
replies in Markdown.

Owns the table of commands in chats. A command that only chats have gets a `ChatCommandContext` and returns a
`CommandReply`. Must not import `inbound` (except for types) or a platform.
"""
