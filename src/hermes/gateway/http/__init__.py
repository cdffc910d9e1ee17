"""HTTP in the gateway: one host for all listeners, limits, and rules for outgoing addresses.

Owns the listening sockets. Must not import platforms or sessions.
"""
