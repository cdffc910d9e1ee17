"""The API server: an OpenAI-compatible HTTP interface to the agent. See docs/api-server.md.

Owns requests, API keys, limits, and the choice of the conversation that a request continues. Imports the
gateway's HTTP host and the conversation. Only the gateway's platform registry names this package; no module
imports it.
"""
