"""The `hermes` command: one file per group of sub-commands, no logic of its own."""
