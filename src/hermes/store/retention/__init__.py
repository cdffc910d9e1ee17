"""Retention: trash, prune, thinning, purge, scrub and opt-in maintenance.

Owns the deletion of data, and the check that no deleted data remains in the home directory. May import
sessions, chats, spool and sealing, but not transfer.
"""
