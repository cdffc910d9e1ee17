"""Operation of the gateway: metrics, health, the status file, the log, API keys and requests of commands.

Owns the files in `<home>/gateway` and the HTTP pages for operators. Must not import chat, session or platform
modules.
"""
