"""Session keys: the key of a chat, its owner, and whether people share it.

A chat is identified by platform, type, chat, thread and participant. The key is their documented spelling; `%` and `:`
inside a part are escaped. Empty parts are left out, so a thread of a group and a person in it can get the same key; the
second of them is then spelled out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import asdict

from hermes import home
from hermes.gateway.inbound_events import Source
from hermes.gateway.settings import Keying
from hermes.store.chats.origins import Chat
from hermes.store.people import Principal

AS_DOCUMENTED = Keying()
APART = Keying(thread_sessions_per_user=True)
_SAFE = re.compile(r"[A-Za-z0-9@.+-]+")


def is_shared_multi_user_session(
    source: Source, *, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False
) -> bool:
    """Whether several people talk in one session there."""
    if source.chat_type == "dm":
        return False
    if not source.participant:
        return True
    apart = thread_sessions_per_user if source.thread_id else group_sessions_per_user
    return not apart


def make_chat(source: Source, keying: Keying = AS_DOCUMENTED) -> Chat:
    """The chat, as its row in the routing knows it."""
    kind = "group" if source.chat_type == "thread" else source.chat_type  # a thread is one of a group
    chat, participant = source.chat_id, source.participant
    if source.platform == "whatsapp":
        # One of which nothing is left stays as it is: otherwise all of those would be one.
        chat = (canonical_whatsapp_identifier(chat) or chat) if kind == "dm" else chat
        participant = (
            (canonical_whatsapp_identifier(participant) or participant) if participant else participant
        )
    if kind == "dm":
        # A chat without an id is known by who is in it.
        participant = participant if not chat and not source.thread_id else None
    elif is_shared_multi_user_session(source, **asdict(keying)):
        participant = None
    return Chat.of(source.platform, kind, chat, source.thread_id, participant)


def make_principal(source: Source) -> Principal:
    """The person, speaking from this chat, as the store knows them: the same whichever name a platform uses."""
    chat = make_chat(source, APART)
    person = source.participant
    if person and source.platform == "whatsapp":
        person = canonical_whatsapp_identifier(person) or person
    return Principal(chat.platform, person, chat.chat_id, chat.thread_id, chat.chat_type)


def make_room(source: Source) -> Principal:
    """Everybody in this chat, and nobody's own."""
    return make_principal(source)._replace(user=None)


def find_owner(source: Source, keying: Keying = AS_DOCUMENTED) -> str:
    """The owner of conversations there: the room if people share them, otherwise the person."""
    if is_shared_multi_user_session(source, **asdict(keying)):
        return make_room(source).room
    return make_principal(source).person or make_room(source).room


def make_session_key(source: Source, keying: Keying = AS_DOCUMENTED) -> str:
    return make_chat_key(make_chat(source, keying))


def make_chat_key(chat: Chat, taken: Callable[[str], Chat | None] | None = None) -> str:
    """The documented spelling: empty parts are left out. If it is `taken` by another chat, the one spelled out.

    A chat keeps the key it got: this is for one that has none yet.
    """
    named = zip(("chat", "thread", "participant"), chat[2:], strict=True)
    parts = {name: _escape_part(part) for name, part in named if part}
    key = ":".join(("agent:main", chat.platform, chat.chat_type, *parts.values()))
    if taken is None or taken(key) in (None, chat):
        return key
    # No part begins so, because a percent sign in it is escaped. With the names the parts are clear, so that no two
    # chats are spelled out alike.
    return f"{key}:%{'+'.join(parts)}"


def _escape_part(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


# ---------------------------------------------------------------- WhatsApp's two ids of a person


def normalize_whatsapp_identifier(identifier: str) -> str:
    """Without the leading plus, the device and the server: `+49 170:3@s.whatsapp.net` is `49 170`."""
    return identifier.strip().replace("+", "", 1).split(":", 1)[0].split("@", 1)[0]


def expand_whatsapp_aliases(identifier: str, folder: Path | None = None) -> set[str]:
    """Every name under which the same person is known; empty for an empty one."""
    where = folder or home.get_hermes_home() / "whatsapp" / "session"
    first = normalize_whatsapp_identifier(identifier)
    aliases: set[str] = set()
    waiting = [first] if first else []
    while waiting:
        name = waiting.pop(0)
        if name in aliases:
            continue
        aliases.add(name)
        if _SAFE.fullmatch(name):  # it becomes part of a file's name
            mapped = (_read_mapping(where / f"lid-mapping-{name}{end}.json") for end in ("", "_reverse"))
            waiting += [name for name in mapped if name]
    return aliases


def canonical_whatsapp_identifier(identifier: str, folder: Path | None = None) -> str:
    """The one name of a person: of all that are known the shortest, and of those the first."""
    aliases = expand_whatsapp_aliases(identifier, folder)
    return min(aliases, key=lambda name: (len(name), name)) if aliases else ""


def _read_mapping(file: Path) -> str:
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_identifier(data) if isinstance(data, str) and _SAFE.fullmatch(data) else ""
