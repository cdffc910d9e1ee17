"""Slash commands of the terminal: its own, the table of all, and the commands of every surface on the screen.

Owns their arguments and their output. A command takes the chat and its argument. Imports input, view and
`hermes.conversation.commands`.
"""
