"""Which session a chat is in, and when it changes: keys, lookup, resets, handoffs.

Owns the live conversations of the gateway and the agents that answer in them. Must not import `commands`. May
import `inbound` only for types.
"""
