"""Outgoing messages: live previews, splitting, delivery from the outbox, and retries.

Owns the outbox and the state of each delivery. Must not import `context`, `sessions`, `commands` or
`inbound`.
"""
