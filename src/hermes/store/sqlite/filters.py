"""Which rows a search may find, as part of its SQL. `?1` is the caller's; what follows is bound by `values_of`."""

from __future__ import annotations

from typing import Any

from hermes.store.content import to_json
from hermes.store.values import MessageFilter

# Of a message `m` and its session `s`. Title, pin and archive are the conversation's: its first session has them.
ALLOWED = """AND m.active = 1 AND s.trashed_at IS NULL
    AND (?2 IS NULL OR s.source IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR s.source NOT IN (SELECT value FROM json_each(?3)))
    AND (?4 IS NULL OR m.role IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR m.timestamp >= ?5) AND (?6 IS NULL OR m.timestamp < ?6)
    AND (?7 IS NULL OR lower(m.tool_name) = lower(?7) OR EXISTS (SELECT 1 FROM json_each(
        CASE WHEN json_valid(m.tool_calls) THEN m.tool_calls ELSE '[]' END) c
        WHERE lower(json_extract(c.value, '$.function.name')) = lower(?7)))
    AND (?8 IS NULL OR instr(lower(s.title), lower(?8)) > 0 OR EXISTS (SELECT 1 FROM sessions r
        WHERE r.root_id = s.root_id AND instr(lower(r.title), lower(?8)) > 0))
    AND (?9 IS NULL OR instr(lower(s.model), lower(?9)) > 0)
    AND (?10 IS NULL OR s.workspace = ?10 OR substr(s.workspace, -length(?10) - 1) = '/' || ?10)
    AND (?11 IS NULL OR s.kind IN (SELECT value FROM json_each(?11)))
    AND (?12 = 0 OR (m.role = 'tool' AND (instr(lower(m.content), 'error') > 0 OR instr(m.content, 'Traceback') > 0)))
    AND (?13 = 0 OR m.tool_calls IS NOT NULL OR m.role = 'tool')
    AND (?14 = 0 OR EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.root_id AND p.pinned_at IS NOT NULL))
    AND (?15 = 0 OR NOT EXISTS (SELECT 1 FROM sessions a WHERE a.id = s.root_id AND a.archived <> 0))
    AND (?16 IS NULL OR coalesce(s.root_id, s.id) NOT IN (SELECT value FROM json_each(?16)))"""


def values_of(wanted: MessageFilter) -> tuple[Any, ...]:
    """The values of ?2 to ?16."""
    return (
        None if wanted.sources is None else to_json(wanted.sources),
        to_json(wanted.exclude_sources) if wanted.exclude_sources else None,
        to_json(wanted.roles) if wanted.roles else None,
        wanted.after,
        wanted.before,
        wanted.tool,
        wanted.title,
        wanted.model,
        wanted.workspace,
        None if wanted.kinds is None else to_json(wanted.kinds),
        int(wanted.errors_only),
        int(wanted.calls_only),
        int(wanted.pinned_only),
        int(wanted.hide_archived),
        to_json(wanted.but_conversations) if wanted.but_conversations else None,
    )
