"""Computes the documented session key of a chat, assuming that no other chat has the same key."""

from __future__ import annotations

from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.session_keys import AS_DOCUMENTED, make_chat, make_chat_key
from hermes.gateway.settings import Keying


def make_session_key(source: Source, keying: Keying = AS_DOCUMENTED) -> str:
    return make_chat_key(make_chat(source, keying))
