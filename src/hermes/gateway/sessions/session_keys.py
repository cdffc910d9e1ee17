"""Session keys: the key of a chat, its owner, and whether people share it.

A chat is identified by platform, type, chat id, thread id and participant. The key joins these parts in the
documented format; `%` and `:` inside a part are escaped. Empty parts are omitted, so a thread of a group and a
person in the group could get the same key. In that case, the second chat gets a longer key that also contains
the names of its parts.
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
    """Return whether several people share one session in this chat."""
    if source.chat_type == "dm":
        return False
    if not source.participant:
        return True
    apart = thread_sessions_per_user if source.thread_id else group_sessions_per_user
    return not apart


def make_chat(source: Source, keying: Keying = AS_DOCUMENTED) -> Chat:
    """Return the chat of a message from `source`, as the routing table stores it: platform, type, chat id, thread
    id and participant. `keying` says in which chats people share a session."""
    kind = "group" if source.chat_type == "thread" else source.chat_type  # a thread belongs to a group
    chat, participant = source.chat_id, source.participant
    if source.platform == "whatsapp":
        # If the canonical id is empty, the original id is kept. Otherwise all such ids would be one chat.
        chat = (canonical_whatsapp_identifier(chat) or chat) if kind == "dm" else chat
        participant = (
            (canonical_whatsapp_identifier(participant) or participant) if participant else participant
        )
    if kind == "dm":
        # A private chat without an id is identified by its person.
        participant = participant if not chat and not source.thread_id else None
    elif is_shared_multi_user_session(source, **asdict(keying)):
        participant = None
    return Chat.of(source.platform, kind, chat, source.thread_id, participant)


def make_principal(source: Source) -> Principal:
    """Return the principal of the sender in this chat. All ids that WhatsApp uses for a person give the same
    principal."""
    chat = make_chat(source, APART)
    person = source.participant
    if person and source.platform == "whatsapp":
        person = canonical_whatsapp_identifier(person) or person
    return Principal(chat.platform, person, chat.chat_id, chat.thread_id, chat.chat_type)


def make_room(source: Source) -> Principal:
    """Return a principal that stands for the whole chat of `source` and not for one person in it."""
    return make_principal(source)._replace(user=None)


def find_owner(source: Source, keying: Keying = AS_DOCUMENTED) -> str:
    """Return the owner of conversations in this chat: the room if people share them, otherwise the person."""
    if is_shared_multi_user_session(source, **asdict(keying)):
        return make_room(source).room
    return make_principal(source).person or make_room(source).room


def make_chat_key(chat: Chat, taken: Callable[[str], Chat | None] | None = None) -> str:
    """Return the documented key of a chat, with empty parts omitted.

    `taken` returns the chat that has a given key, or None. If another chat has the documented key, return a longer
    key that contains the names of the parts. Use this function only for a chat without a key, because the key of
    a chat never changes.
    """
    named = zip(("chat", "thread", "participant"), chat[2:], strict=True)
    parts = {name: _escape_part(part) for name, part in named if part}
    key = ":".join(("agent:main", chat.platform, chat.chat_type, *parts.values()))
    if taken is None or taken(key) in (None, chat):
        return key
    # A percent sign in a part is escaped, so no part looks like this suffix. The part names make the key unique.
    return f"{key}:%{'+'.join(parts)}"


def _escape_part(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


# ---------------------------------------------------------------- WhatsApp's two ids of a person


def normalize_whatsapp_identifier(identifier: str) -> str:
    """Return a WhatsApp identifier without the leading plus, the device and the server: `+49 170:3@s.whatsapp.net`
    becomes `49 170`."""
    return identifier.strip().replace("+", "", 1).split(":", 1)[0].split("@", 1)[0]


def expand_whatsapp_aliases(identifier: str, folder: Path | None = None) -> set[str]:
    """Return every WhatsApp identifier that is known for the person with this identifier. The result is empty for
    an empty identifier. The identifiers are linked by mapping files in `folder`."""
    where = folder or home.get_hermes_home() / "whatsapp" / "session"
    first = normalize_whatsapp_identifier(identifier)
    aliases: set[str] = set()
    waiting = [first] if first else []
    while waiting:
        name = waiting.pop(0)
        if name in aliases:
            continue
        aliases.add(name)
        if _SAFE.fullmatch(name):  # the name becomes part of a file name
            mapped = (_read_mapping(where / f"lid-mapping-{name}{end}.json") for end in ("", "_reverse"))
            waiting += [name for name in mapped if name]
    return aliases


def canonical_whatsapp_identifier(identifier: str, folder: Path | None = None) -> str:
    """Return the one WhatsApp identifier that stands for a person: the shortest of all that are known. Among
    several of that length, it is the first in alphabetical order."""
    aliases = expand_whatsapp_aliases(identifier, folder)
    return min(aliases, key=lambda name: (len(name), name)) if aliases else ""


def _read_mapping(file: Path) -> str:
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_identifier(data) if isinstance(data, str) and _SAFE.fullmatch(data) else ""
