"""Approvals: which actions of a tool need the person's consent, and which consents are already stored.

Owns the request and decision values, the shell parser that recognises read-only commands, and the grants
stored per workspace. Of the other parts of the agent, imports only the sandbox. Surfaces answer the
`ApprovalAsked` events of a turn.
"""
