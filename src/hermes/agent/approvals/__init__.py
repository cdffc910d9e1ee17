"""Approvals: which actions of a tool need the person's consent, and which consent was given before.

Owns the request and decision values, the shell parser that recognises read-only commands, and the grants stored per
workspace. Knows no surface: a surface answers `ApprovalAsked` events of a turn.
"""
