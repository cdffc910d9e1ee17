"""Chats of the gateway: leases, routing, inbox, outbox, handoffs and Telegram topics.

Owns the tables that connect a platform's chats to sessions. May import `store.sessions`, but not retention or
transfer.
"""
