"""The API server: the agent behind an OpenAI-compatible interface. See docs/api-server.md.

Owns requests, keys, limits and the match of a request to a conversation. Uses the gateway's HTTP host.
"""
