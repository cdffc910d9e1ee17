"""HTTP in the gateway: one host for all listeners, limits, and rules for outgoing addresses.

Owns the listening sockets. Imports no platform and nothing of sessions.
"""
