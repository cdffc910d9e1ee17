"""Slash commands of the terminal: its own commands, the table of all commands, and the output of shared
commands.

This folder owns the arguments and the output of the commands. The function of a command receives the `Chat`
object of the terminal and the text after the command name. The folder imports `hermes.chat.input`,
`hermes.chat.view` and `hermes.conversation.commands`.
"""
