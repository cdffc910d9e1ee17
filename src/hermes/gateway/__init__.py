"""The gateway: chat platforms, each chat a conversation of its own.

Owns the way of a message from a platform to the answer and back. Imports the agent and the handles; no other surface
except `server` imports it.
"""
