"""The list of sessions for an editor, in pages.
Each entry of the list is a conversation. A compressed conversation is listed once, under the id of its first session,
because the editor already knows that id.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from acp.schema import ListSessionsResponse, SessionInfo

from hermes import clock, errors
from hermes.store.content import from_json
from hermes.store.people import LOCAL
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

Row = dict[str, Any]

ACP = "acp"
SOURCES = (ACP, "cli")
"""The sources of the listed sessions: editors, and the terminal of this machine."""
PAGE, BATCH = 50, 100
"""The number of sessions on a page, and the number of conversations that one store query reads."""
LONGEST_TITLE = 120
NEW = "New thread"


class Cursor(NamedTuple):
    """The position of the last conversation of a page in the list. The next page begins after it, even if newer
    conversations were added meanwhile."""

    active: float
    started: float
    root_id: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode()


def decode_cursor(text: str) -> Cursor:
    try:
        active, started, root_id = json.loads(base64.urlsafe_b64decode(text))
        return Cursor(float(active), float(started), str(root_id))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise errors.make_error(
            errors.InvalidArgument, "cursor is not the nextCursor of an earlier response"
        ) from None


def normalise_directory(path: str | Path) -> Path:
    """Return a directory in the form in which directories are compared: absolute, without links and `..`."""
    return Path(os.path.realpath(Path(path).expanduser()))


def list_sessions(store: SessionDB, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
    """Return a page of the conversations that have messages, newest activity first. With `cwd`, only conversations with
    this working directory are returned. `cursor` is the end of the previous page. Reads the store."""
    after = None if cursor is None else decode_cursor(cursor)
    directory = None if cwd is None else normalise_directory(cwd)
    found, last = list[SessionInfo](), after
    for place, row in _iterate_rows(store, after):
        session = store.get_session(row["id"]) if row["message_count"] else None
        if session is None or session["owner"] != LOCAL:
            continue
        info = describe_session(row, session)
        if directory is not None and normalise_directory(info.cwd) != directory:
            continue
        if len(found) == PAGE:
            return ListSessionsResponse(sessions=found, next_cursor=None if last is None else last.encode())
        found.append(info)
        last = place
    return ListSessionsResponse(sessions=found)


def _iterate_rows(store: SessionDB, after: Cursor | None) -> Iterator[tuple[Cursor, Row]]:
    """Yield the conversations that follow the cursor `after` in the list, newest activity first. Each comes with the
    cursor of its own position."""
    # `until` is exclusive in the store. Conversations that were active at the time of the cursor must be included.
    until = None if after is None else math.nextafter(after.active, math.inf)
    offset = 0
    while True:
        page = store.list_conversations(
            sources=SOURCES,
            kinds=("chat",),
            archived=False,
            until=until,
            limit=BATCH,
            offset=offset,
        )
        for row in page.rows:
            place = _make_cursor(store, row)
            if after is None or place < after:
                yield place, row
        offset += BATCH
        if len(page.rows) < BATCH:
            return


def _make_cursor(store: SessionDB, row: Row) -> Cursor:
    active = row["last_active"]
    if (
        row["id"] != row["root_id"]
    ):  # the store orders a compressed conversation by the activity of all its sessions
        segments = store.outlines([row["id"]], whole=True)
        active = max(clock.filter_times(segment.last_active for segment in segments), default=active)
    return Cursor(active, row["started_at"], row["root_id"])


def describe_session(row: Row, session: Row) -> SessionInfo:
    """Return the entry for a conversation in the editor's list. `row` is the conversation's row from
    `list_conversations`, `session` the row of its live session."""
    return SessionInfo(
        session_id=row["root_id"],
        cwd=find_directory(session) or str(Path.home()),
        title=make_title(row["title"], row["preview"], find_directory(session)),
        updated_at=clock.format_iso_utc(row["last_active"]),
    )


def make_title(title: str | None, preview: str | None, cwd: str | None) -> str:
    """Return the title of a conversation for the editor. If it has none, return the beginning of the conversation, and
    if that is empty, the name of its directory."""
    name = title or preview or (Path(cwd).name if cwd else "") or NEW
    return make_printable(name, width_limit=LONGEST_TITLE)


def find_directory(session: Mapping[str, Any]) -> str | None:
    """Return the working directory of a session, as stored; None if none is stored."""
    if session["cwd"]:
        return str(session["cwd"])
    config = session["model_config"]
    config = from_json(config, None) if isinstance(config, str) else config
    directory = config.get("cwd") if isinstance(config, dict) else None
    return directory if isinstance(directory, str) and directory else None
