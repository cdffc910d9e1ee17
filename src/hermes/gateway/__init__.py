"""The gateway: connects chat platforms to the agent. Each chat is a separate conversation.

Owns the path of a message from a platform to the answer and back. Imports the agent and the store handles. Of
the other surfaces, only `server` imports it.
"""
