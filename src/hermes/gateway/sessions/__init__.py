"""Which session a chat is in, and when the chat changes its session: keys, lookup, resets, handoffs.

Owns the live conversations of the gateway and the agents that answer in them. Must not import `commands`. May
import `inbound` only for types.
"""
