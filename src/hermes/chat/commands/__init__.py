"""Slash commands of the terminal chat, one module per group, and their table.

Owns the commands' arguments and their output. A command takes the chat and its argument. Imports input and view.
"""
