"""One-time import of the routing of an older installation from its `sessions.json`.

The key of each chat is computed again from the `origin` of its entry. The chat is routed to its session if the
store has that session. An invalid entry is skipped and logged in one line. A chat that already has a route is
not changed. After the import, `sessions.json` is only a mirror of the store.
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
    """One line for each skipped entry, with the reason."""


def import_once(db: SessionDB, file: Path, keying: Keying = AS_DOCUMENTED) -> ImportResult:
    """Import the routing of an older installation, unless this was done before. After the import the gateway
    itself writes the file, so it must not be imported again."""
    if db.get_meta(DONE_KEY) is not None:
        return ImportResult(0, [])
    taken = import_file(db, file, keying)
    for line in taken.left_out:
        log.warning("%s: %s", file, line)
    mark_imported(db)
    return taken


def mark_imported(db: SessionDB) -> None:
    """Record in the store that the import of `sessions.json` is done or not needed."""
    db.set_meta(DONE_KEY, clock.format_iso(clock.now()))


def import_file(db: SessionDB, file: Path, keying: Keying = AS_DOCUMENTED) -> ImportResult:
    """Route every chat in `file`, a `sessions.json`, to its session, if the session exists and the chat has no
    route yet. Return the number of chats, and a line for each entry that was not imported."""
    chats, left_out = 0, list[str]()
    entries, problem = read_entries(file)
    if problem is not None:
        left_out.append(problem)
    # If two entries describe the same chat, the most recently used one wins.
    for key, entry in sorted(entries.items(), key=lambda item: _last_used(item[1]), reverse=True):
        try:
            chats += _import_entry(db, entry, keying)
        except (errors.InvalidArgument, errors.UnknownSession) as why:
            left_out.append(f"{key!r:.120} was not imported: {why}")
    return ImportResult(chats, left_out)


def read_entries(file: Path) -> tuple[dict[str, Any], str | None]:
    """Return the entries of `sessions.json` by key, and an error text or None. If the file as a whole is
    invalid, there are no entries. A missing file has no entries and is no error."""
    try:
        data = from_json(file.read_text("utf-8"), None)
    except FileNotFoundError:
        return {}, None
    except (OSError, UnicodeDecodeError) as problem:
        return {}, f"cannot be read: {problem}"
    return (data, None) if isinstance(data, dict) else ({}, "is not an object of entries")


def _import_entry(db: SessionDB, entry: object, keying: Keying) -> bool:
    """Route the chat of an entry to its session. Return False if the chat already has a route."""
    if not isinstance(entry, Mapping):
        raise errors.InvalidArgument("it is not a valid entry")
    origin, session_id = entry.get("origin"), entry.get("session_id")
    if not isinstance(origin, Mapping):
        raise errors.InvalidArgument("it has no valid origin")
    if not isinstance(session_id, str) or not session_id:
        raise errors.InvalidArgument("it has no session_id")
    source = Source.from_dict({"platform": entry.get("platform"), **origin})
    chat = make_chat(source, keying)
    if db.routing.find(*chat) is not None:
        return False
    owner = find_owner(source, keying)
    if not owner:
        raise errors.InvalidArgument("it names neither a person nor a room")
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
