"""The path from a platform's message to a turn: router, mailbox, access control, pairing, approvals.

Owns the state of a chat, the order of its messages and the recovery of the inbox. At run time only `app`
imports this package. `sessions`, `commands` and `context` import only its types.
"""
