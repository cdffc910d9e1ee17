"""The gateway: chat platforms, each chat a conversation of its own.

Owns a message's path from a platform to the answer and back. Imports the agent and the handles. Of the other surfaces,
only `server` imports it.
"""
