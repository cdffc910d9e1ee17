"""The Agent Client Protocol: `hermes acp`, an agent that an editor starts and talks to over stdin and stdout.

Owns the requests of the editor, its sessions, and the translation of events and stored messages to session updates.
Only this folder imports the SDK, the package `acp`. The SDK is an extra, so only `hermes.cli.acp` imports this folder,
after it has checked that the SDK is installed. Imports no other surface.
"""
