"""Slash commands, implemented once for all surfaces. A command gets a `CommandContext` and the text after its name,
and returns data.

Owns the effect of each command and the text of its reply (`wording`). The terminal (`chat.commands`) and the chat
platforms (`gateway.commands`) add their markup. To add a command, write a function and a `Command` in one of the
modules here. A new kind of reply also needs a text in `wording`. Must not import a surface.
"""
