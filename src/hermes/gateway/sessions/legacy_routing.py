"""One-time import of the routing of an older installation from its `sessions.json`.

Each chat gets a new key from its origin, and continues in its session if the store has it. An invalid entry is skipped
with one line in the log. A chat that the store knows is never changed: from then on the file only mirrors the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock, errors
from hermes.gateway.inbound_events import Source
from hermes.gateway.mirror.transcript_lines import parse_time
from hermes.gateway.sessions.session_keys import AS_DOCUMENTED, find_owner, make_chat, make_chat_key
from hermes.gateway.settings import Keying
from hermes.logs import get_logger
from hermes.store.content import from_json
from hermes.store.sealing.plain_files import ROUTING_TAKEN_OVER

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

log = get_logger(__name__)

DONE_KEY = ROUTING_TAKEN_OVER
KEPT = (
    *("display_name", "last_prompt_tokens", "expiry_finalized", "suspended", "resume_pending"),
    *("resume_reason", "last_resume_marked_at", "is_fresh_reset"),
)


class ImportResult(NamedTuple):
    chats: int
    left_out: list[str]
    """Why an entry was left out, a line each."""


def import_once(db: SessionDB, file: Path, keying: Keying = AS_DOCUMENTED) -> ImportResult:
    """What an older installation left, the first time; nothing ever after, for then the file is our own."""
    if db.get_meta(DONE_KEY) is not None:
        return ImportResult(0, [])
    taken = import_file(db, file, keying)
    for line in taken.left_out:
        log.warning("%s: %s", file, line)
    mark_imported(db)
    return taken


def mark_imported(db: SessionDB) -> None:
    """There is nothing older beside this store."""
    db.set_meta(DONE_KEY, clock.format_iso(clock.now()))


def import_file(db: SessionDB, file: Path, keying: Keying = AS_DOCUMENTED) -> ImportResult:
    """Put every chat of the file into its session, as far as the store knows the one and not yet the other."""
    chats, left_out = 0, list[str]()
    entries, problem = read_entries(file)
    if problem is not None:
        left_out.append(problem)
    # Of two entries that turn out to be the same chat the one that was used last counts.
    for key, entry in sorted(entries.items(), key=lambda item: _last_used(item[1]), reverse=True):
        try:
            chats += _import_entry(db, entry, keying)
        except (errors.InvalidArgument, errors.UnknownSession) as why:
            left_out.append(f"{key!r:.120} is left out: {why}")
    return ImportResult(chats, left_out)


def read_entries(file: Path) -> tuple[dict[str, Any], str | None]:
    """The entries by their keys, and what is wrong with the file as a whole."""
    try:
        data = from_json(file.read_text("utf-8"), None)
    except FileNotFoundError:
        return {}, None
    except (OSError, UnicodeDecodeError) as problem:
        return {}, f"cannot be read: {problem}"
    return (data, None) if isinstance(data, dict) else ({}, "is not an object of entries")


def _import_entry(db: SessionDB, entry: object, keying: Keying) -> bool:
    """Whether the chat is routed now and was not before."""
    if not isinstance(entry, Mapping):
        raise errors.InvalidArgument("it is no entry")
    origin, session_id = entry.get("origin"), entry.get("session_id")
    if not isinstance(origin, Mapping):
        raise errors.InvalidArgument("it does not say where the chat is")
    if not isinstance(session_id, str) or not session_id:
        raise errors.InvalidArgument("it names no session")
    source = Source.from_dict({"platform": entry.get("platform"), **origin})
    chat = make_chat(source, keying)
    if db.routing.find(*chat) is not None:
        return False
    owner = find_owner(source, keying)
    if not owner:
        raise errors.InvalidArgument("it tells neither a person nor a room")
    db.adopt_conversation(session_id, owner)
    db.routing.route(
        make_chat_key(chat, db.routing.find_chat), *chat, session_id, _kept_fields(entry, source)
    )
    return True


def _kept_fields(entry: Mapping[str, Any], source: Source) -> dict[str, Any]:
    fields = {name: entry[name] for name in KEPT if entry.get(name)}
    if entry.get("memory_flushed") and "expiry_finalized" not in fields:  # its name in the oldest files
        fields["expiry_finalized"] = True
    return fields | {"origin": source.to_dict()}


def _last_used(entry: object) -> float:
    return (parse_time(entry.get("updated_at")) if isinstance(entry, Mapping) else None) or 0.0
