"""The `hermes` command: one module per sub-command, imported when the command is called.

Owns arguments, exit codes and output. Commands parse arguments, call other layers and print; they contain no
logic of their own. Imports every layer below. No other layer imports it.
"""
