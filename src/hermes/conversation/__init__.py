"""A live conversation, for every surface: the terminal, one-shot questions, editors, the gateway and the HTTP API.

Owns the session under its lease, and the agent that answers in it. Differences between surfaces are passed in
as `Surface` and `AgentScope`. Imports no surface: neither chat, interop, gateway, server, cli nor browser.
"""
