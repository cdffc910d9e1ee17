"""Platform adapters, one folder for each platform.

Owns all code that depends on the SDK of a platform. An adapter implements the interface in `gateway.adapter`.
Adapters must not import sessions, the store or the agent.
"""
