"""A live conversation, for every surface: the terminal, one-shot questions, the gateway and the HTTP API.

Imports no surface: neither chat, gateway, server, cli nor browser.
"""
