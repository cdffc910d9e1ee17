"""Retention: trash, prune, thinning, purge, scrub and opt-in maintenance.

Owns the deletion of data, and the check that nothing of it remains in the home directory. May import
sessions, chats, spool and sealing, not transfer.
"""
