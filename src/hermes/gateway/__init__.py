"""The gateway: connects chat platforms to the agent. Each chat is a separate conversation.

Owns the path of a message from a platform to the agent, and the path of the answer back. Imports the agent and
the store handles. Of the other surfaces, only `server` imports the gateway.
"""
