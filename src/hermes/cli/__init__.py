"""The `hermes` command: a module per sub-command, loaded when it is called.

Owns arguments, exit codes and output. Commands parse, call and print; they hold no logic of their own. Imports every
layer below; nothing imports it.
"""
