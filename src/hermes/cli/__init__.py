"""The `hermes` command: a module per sub-command, loaded when it is called.

Commands parse, call and print. They hold no logic of their own.
"""
