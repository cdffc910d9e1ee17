"""HTTP in the gateway: the server for all listeners, its limits, and rules for outgoing requests.

Owns the listening sockets. Must not import platforms or sessions.
"""
