"""Approvals: which actions of a tool need the person's consent, and which consent was given before.

Owns the request and decision values, the shell parser that recognises read-only commands, and the grants stored per
workspace. Of the agent it imports the sandbox only: a surface answers the `ApprovalAsked` events of a turn.
"""
