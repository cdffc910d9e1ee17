"""Terminal input and output of commands: prompts, keys, columns, progress, editing of files.

This folder owns the dialog between a command and the user. It imports no command.
"""
