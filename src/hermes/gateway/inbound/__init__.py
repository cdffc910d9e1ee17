"""From a platform's message to a turn: router, mailbox, access control, pairing, approvals.

Owns the order of messages in a chat and recovery of the inbox.
"""
