"""Statistics of a store: numbers of rows and sizes in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hermes.store.engine import Engine

BY_SOURCE = """SELECT source, count(*) FROM sessions WHERE trashed_at IS NULL
    GROUP BY source ORDER BY 2 DESC, source"""
MESSAGES = """SELECT count(*) FROM messages m WHERE EXISTS
    (SELECT 1 FROM sessions s WHERE s.id = m.session_id AND s.trashed_at IS NULL)"""
IN_TRASH = "SELECT count(*) FROM sessions WHERE trashed_at IS NOT NULL"
SIZE = """sum(coalesce(octet_length(content), 0) + coalesce(octet_length(tool_calls), 0)
    + coalesce(octet_length(reasoning), 0) + coalesce(octet_length(reasoning_content), 0)
    + coalesce(octet_length(reasoning_details), 0) + coalesce(octet_length(codex_reasoning_items), 0)
    + coalesce(octet_length(codex_message_items), 0)) FROM messages"""
BY_ROLE = " ".join(("SELECT role,", SIZE, "GROUP BY role"))
OF_SESSION = " ".join(("SELECT", SIZE, "WHERE session_id = ?"))
PROMPTS = "SELECT sum(coalesce(octet_length(system_prompt), 0)) FROM sessions"
LAST_WRITE = "SELECT id, session_id, timestamp FROM messages ORDER BY id DESC LIMIT 1"


class Statistics(NamedTuple):
    """Numbers of session and message rows, and sizes in bytes. Sessions in the trash are counted separately."""

    sessions: int
    messages: int
    by_source: list[tuple[str, int]]
    in_trash: int
    text: int
    """Bytes of text in messages of people and the agent."""
    tool_output: int
    prompts: int
    """Bytes of the system prompts of all sessions."""
    files: dict[str, int]
    """Bytes on disk by purpose: `rows`, `index`, `attachments`, `free`, `log`."""
    last_write: tuple[int, str, float] | None
    """The newest durable message: its id, session id and timestamp."""

    @property
    def on_disk(self) -> int:
        return sum(self.files.values())


def collect_statistics(engine: Engine) -> Statistics:
    with engine.read(settled=True) as reader:
        by_source = [(str(source), int(count)) for source, count in reader.rows(BY_SOURCE)]
        by_role = {str(role): int(size or 0) for role, size in reader.rows(BY_ROLE)}
        last = reader.row(LAST_WRITE)
        return Statistics(
            sessions=sum(count for _source, count in by_source),
            messages=reader.value(MESSAGES) or 0,
            by_source=by_source,
            in_trash=reader.value(IN_TRASH) or 0,
            text=sum(size for role, size in by_role.items() if role != "tool"),
            tool_output=by_role.get("tool", 0),
            prompts=reader.value(PROMPTS) or 0,
            files=engine.sizes(),
            last_write=None if last is None else (last[0], last[1], last[2]),
        )


def count_text_bytes(engine: Engine, session_ids: Iterable[str]) -> int:
    """Return the total size in bytes of the stored messages of these sessions."""
    with engine.read() as reader:
        return sum(reader.value(OF_SESSION, session_id) or 0 for session_id in session_ids)
