"""The SQL conditions for the messages and sessions that a search filter allows.

The conditions use the parameters from `?2` on, and `values_of` returns their values. `?1` is left to the statement
that contains the conditions.

Conditions that SQL cannot express use the functions of `sql_functions`. These functions are called only if the filter
needs them, and those for titles only once per session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes.store.content import to_json

if TYPE_CHECKING:
    from hermes.store.values import MessageFilter

# Conditions for a message `m` and its session `s`. Title, pin and archive belong to the conversation, so they are
# read from its first session. A session that another program has just created has no root yet and is its own root.
OF_MESSAGE = """AND m.active = 1
    AND (?4 IS NULL OR m.role IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR m.timestamp >= ?5) AND (?6 IS NULL OR m.timestamp < ?6)
    AND (?7 IS NULL OR lower(m.tool_name) = lower(?7) OR EXISTS (SELECT 1 FROM json_each(
        CASE WHEN json_valid(m.tool_calls) THEN m.tool_calls ELSE '[]' END) c WHERE lower(CASE c.type WHEN 'object'
            THEN coalesce(json_extract(c.value, '$.function.name'), json_extract(c.value, '$.name')) END) = lower(?7)))
    AND (?12 = 0 OR (m.role = 'tool' AND hermes_failed(m.content)))
    AND (?13 = 0 OR m.role = 'tool' OR (m.tool_calls IS NOT NULL AND m.tool_calls NOT IN ('', '[]', 'null')))"""
OF_SESSION = """AND (s.trashed_at IS NOT NULL) = ?16
    AND (?2 IS NULL OR s.source IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR s.source NOT IN (SELECT value FROM json_each(?3)))
    AND (?8 IS NULL OR coalesce(s.root_id, s.id) IN (SELECT coalesce(r.root_id, r.id) FROM sessions r
        WHERE r.title IS NOT NULL AND instr(hermes_folded(r.title), hermes_folded(?8)) > 0))
    AND (?9 IS NULL OR instr(lower(s.model), lower(?9)) > 0)
    AND (?10 IS NULL OR s.workspace = ?10 OR substr(s.workspace, -length(?10) - 1) IN ('/' || ?10, '\\' || ?10))
    AND (?11 IS NULL OR s.kind IN (SELECT value FROM json_each(?11)))
    AND (?14 IS NULL OR ?14 = EXISTS (SELECT 1 FROM sessions p
        WHERE p.id = coalesce(s.root_id, s.id) AND p.pinned_at IS NOT NULL))
    AND (?15 IS NULL OR ?15 = EXISTS (SELECT 1 FROM sessions a
        WHERE a.id = coalesce(s.root_id, s.id) AND a.archived <> 0))
    AND (?17 IS NULL OR coalesce(s.root_id, s.id) IN (SELECT coalesce(g.root_id, g.id)
        FROM tags t JOIN sessions g ON g.id = t.session_id WHERE t.tag IN (SELECT value FROM json_each(?17))
        GROUP BY coalesce(g.root_id, g.id) HAVING count(DISTINCT t.tag) = json_array_length(?17)))
    AND (?18 IS NULL OR coalesce(s.root_id, s.id) NOT IN (SELECT coalesce(g.root_id, g.id)
        FROM tags t JOIN sessions g ON g.id = t.session_id WHERE t.tag IN (SELECT value FROM json_each(?18))))
    AND (?19 IS NULL OR coalesce(s.root_id, s.id) NOT IN (SELECT value FROM json_each(?19)))"""
ALLOWED = " ".join((OF_MESSAGE, OF_SESSION))


def is_of_messages(message_filter: MessageFilter) -> bool:
    """Return whether the search filter has conditions on single messages, such as their role or time, and not only on
    sessions.
    """
    return bool(
        message_filter.roles
        or message_filter.tool
        or message_filter.errors_only
        or message_filter.calls_only
        or message_filter.after is not None
        or message_filter.before is not None
    )


def values_of(message_filter: MessageFilter) -> tuple[Any, ...]:
    """Return the values of the search filter, in the order of the SQL parameters from `?2` on."""
    return (
        None if message_filter.sources is None else to_json(message_filter.sources),
        to_json(message_filter.exclude_sources) if message_filter.exclude_sources else None,
        to_json(message_filter.roles) if message_filter.roles else None,
        message_filter.after,
        message_filter.before,
        message_filter.tool,
        message_filter.title,
        message_filter.model,
        message_filter.workspace,
        None if message_filter.kinds is None else to_json(message_filter.kinds),
        int(message_filter.errors_only),
        int(message_filter.calls_only),
        None if message_filter.pinned is None else int(message_filter.pinned),
        None if message_filter.archived is None else int(message_filter.archived),
        int(message_filter.trashed),
        to_json(message_filter.tags) if message_filter.tags else None,
        to_json(message_filter.exclude_tags) if message_filter.exclude_tags else None,
        to_json(message_filter.but_conversations) if message_filter.but_conversations else None,
    )
