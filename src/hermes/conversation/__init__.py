"""A live conversation, for every surface: the terminal, one-shot questions, editors, the gateway and the HTTP API.

Owns the lease of the session, and the agent that answers in it. A surface passes its differences as `Surface` and
`AgentScope`. Imports no surface: neither chat, interop, gateway, server, cli nor browser.
"""
