"""Terminal input and output of commands: prompts, keys, columns, progress, files for a person.

Owns how a command asks and answers a person. Imports no command.
"""
