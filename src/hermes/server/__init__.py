"""The API server: an OpenAI-compatible HTTP interface to the agent. See docs/api-server.md.

Owns requests, API keys, limits, and the choice of the conversation that a request continues. Imports the gateway's
HTTP server and the conversation. No module imports this package. The gateway loads it by its name in the platform
registry.
"""
