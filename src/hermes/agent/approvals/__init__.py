"""Approvals: which actions of a tool need the person's consent, and which consents are already stored.

This folder owns the request and decision values, the shell parser that recognises read-only commands, and the
grants stored per workspace. The only other part of the agent that it imports is the sandbox. Surfaces answer
the `ApprovalAsked` events of a turn.
"""
