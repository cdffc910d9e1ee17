"""Which session a chat is in, and when the chat changes its session: keys, lookup, resets, handoffs.

Owns the keys of chats, the resets, the daily limits, and the part of the prompt that describes the chat. Must not
import `commands`. May import `inbound` only for types.
"""
