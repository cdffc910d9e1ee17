"""From a platform's message to a turn: router, mailbox, access control, pairing, approvals.

Owns the state of a chat, the order of its messages and recovery of the inbox. Only `app` imports it.
"""
