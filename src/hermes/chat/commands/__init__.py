"""Slash commands of the terminal: its own commands, the table of all commands, and the output of shared
commands.

Owns their arguments and their output. A command takes the chat and its argument. Imports input, view and
`hermes.conversation.commands`.
"""
