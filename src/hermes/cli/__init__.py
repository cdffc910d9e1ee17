"""The `hermes` command: one module per sub-command, imported when the command is called.

This folder owns arguments, exit codes and output. Commands parse arguments, call other layers and print; they
contain no logic of their own. The folder imports every layer below it. No other layer imports it.
"""
