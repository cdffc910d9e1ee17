"""HTTP in the gateway: one host for all listeners, limits, and rules for outgoing addresses.

Knows no platform and no session.
"""
