"""Terminal input and output of commands: prompts, keys, columns, progress, editing of files.

Owns the dialog between a command and the user. Imports no command.
"""
