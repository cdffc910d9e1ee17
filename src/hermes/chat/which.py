"""Which conversation a person means: the last one, or one by any id, beginning of an id, or title of its family.

Whatever of a family is named, the answer is its live end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock
from hermes.text import printable

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB

Row = dict[str, Any]

LATEST = "latest"
PAGE = 20


class Meant(NamedTuple):
    id: str | None
    """Where the conversation goes on; None if there is no such one, or several."""
    candidates: list[Row]
    """One row for each conversation that it might be: `id` (its live end), `title`, `preview`, `last_active`."""


def meant(db: SessionDB, name: str) -> Meant:
    if name.strip() == LATEST and db.get_session_by_title(LATEST) is None:
        row = latest(db)
        return Meant(None if row is None else row["id"], [])
    named = db.named(name)
    if named.id is not None:
        return Meant(db.get_compression_tip(named.id), [])
    by_tip: dict[str, Row] = {}
    for row in named.candidates:  # several segments of one conversation are one candidate
        tip = db.get_compression_tip(row["id"])
        by_tip.setdefault(tip, {**row, "id": tip})
    if len(by_tip) == 1:
        return Meant(next(iter(by_tip)), [])
    return Meant(None, list(by_tip.values()))


def latest(db: SessionDB, workspace: Path | None = None) -> Row | None:
    """The terminal conversation with the newest activity in which something was said."""
    offset = 0
    while True:
        page = db.list_conversations(
            sources=["cli"], kinds=["chat"], workspace=workspace, limit=PAGE, offset=offset
        )
        for row in page.rows:
            if row["message_count"] or db.get_context(
                row["id"]
            ):  # a branch may only carry what was said before
                return row
        offset += PAGE
        if offset >= page.total:
            return None


def told(row: Row) -> str:
    """A conversation in one line, for somebody who has to choose."""
    name = printable(row["title"] or row["preview"] or "—", width_limit=60)
    return f"{row['id']}  {name}  ({clock.relative(row['last_active'], clock.now())})"
