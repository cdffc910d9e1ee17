"""The API server: the agent behind an OpenAI-compatible interface. See docs/api-server.md.

Owns requests, keys, limits and the match of a request to a conversation. Imports the gateway's HTTP host and the
conversation. The gateway's registry names it, and no module imports it.
"""
