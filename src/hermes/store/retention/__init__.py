"""How data leaves the store: trash, prune, thinning, purge, scrub and opt-in maintenance.

Owns deletion and the proof that nothing of it stays in the home. May import sessions, chats, spool and sealing, not
transfer.
"""
