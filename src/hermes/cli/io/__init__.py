"""Terminal input and output of commands: prompts, keys, columns, progress, files for a person.

Knows no command.
"""
