"""A live conversation, for every surface: the terminal, one-shot questions, the gateway and the HTTP API.

Owns the session under its lease, the agent that answers in it, and the reduction of a turn's events to an answer. What
differs by surface is passed in. Imports no surface: neither chat, gateway, server, cli nor browser.
"""
