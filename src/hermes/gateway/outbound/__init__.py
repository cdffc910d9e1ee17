"""From an answer to a platform: streaming, splitting, delivery from the outbox, retries.

Owns the outbox and the state of each delivery. Must not import `context`, `sessions`, `commands` or `inbound`.
"""
