"""Rewind: removal of the last messages from a conversation, and their restoration.

Rewound messages are left out of the context and of search, but they are not deleted. A session's own messages
are marked inactive. Carried messages belong to another session and stay active there. The rewound session
sets their ranges aside and can restore them.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from hermes import clock, errors
from hermes.message_content import make_prompt_preview
from hermes.store import derived
from hermes.store.arguments import check_integer, check_optional_integer
from hermes.store.content import decode
from hermes.store.engine import Access, Reader, Writer
from hermes.store.sessions import carried_context
from hermes.store.sessions.messages import check_fence, decode_row
from hermes.store.sessions.sessions import IS_TRASHED

ROW = "SELECT * FROM messages WHERE id = ?"
TAKE_BACK = "UPDATE messages SET active = 0, rewound_at = ? WHERE id = ? AND session_id = ? AND active = 1"
GIVE_BACK = """UPDATE messages SET active = 1, rewound_at = NULL
    WHERE session_id = ? AND id >= ? AND active = 0 AND rewound_at IS NOT NULL"""
# The search index stores active messages in blocks of neighbours. Each block with a noted message is rebuilt.
NOTE_TAKEN = "INSERT INTO changed_messages (message_id) VALUES (?) ON CONFLICT DO NOTHING"
NOTE_GIVEN = """INSERT INTO changed_messages (message_id) SELECT id FROM messages
    WHERE session_id = ? AND id >= ? AND active = 0 AND rewound_at IS NOT NULL ON CONFLICT DO NOTHING"""
NEWEST_REWIND = "SELECT max(rewound_at) FROM messages WHERE session_id = ?"
# The last message written in the session itself. Messages that the session carries are left out, even if they
# are stored in it, because they are older than all messages written in it.
LAST_SAID = """SELECT max(m.id) FROM messages m WHERE m.session_id = ? AND m.active = 1
    AND NOT EXISTS (SELECT 1 FROM carried_context c WHERE c.session_id = m.session_id
        AND m.id BETWEEN c.first_message_id AND c.last_message_id)"""
REWIND_GROUPS = """SELECT m.rewound_at, min(m.id), max(m.id) FROM messages m
    WHERE m.session_id = ? AND m.active = 0 AND m.rewound_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM carried_context c WHERE c.session_id = m.session_id
        AND m.id BETWEEN c.first_message_id AND c.last_message_id)
    GROUP BY m.rewound_at"""
GIVE_BACK_SINCE = """UPDATE messages SET active = 1, rewound_at = NULL
    WHERE session_id = ? AND active = 0 AND rewound_at >= ?"""
GIVE_BACK_ONE = """UPDATE messages SET active = 1, rewound_at = NULL
    WHERE id = ? AND session_id = ? AND active = 0 AND rewound_at IS NOT NULL"""
NOTE_GIVEN_SINCE = """INSERT INTO changed_messages (message_id) SELECT id FROM messages
    WHERE session_id = ? AND active = 0 AND rewound_at >= ? ON CONFLICT DO NOTHING"""
SHORTEST_S = 0.000_002
"""The minimum difference in seconds between the times of two rewinds of a session, even if the clock returns
the same time twice."""
COUNT_REWIND = "UPDATE sessions SET rewind_count = rewind_count + 1 WHERE id = ?"
FROM_PERSON = "SELECT id, content, content_kind, timestamp FROM messages WHERE id = ? AND role = 'user'"


class Rewinds:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def rewind_to(
        self, session_id: str, user_message_id: int, lease_epoch: int | None = None
    ) -> dict[str, Any]:
        """Take out a person's message and everything after it, so that the person can write the message
        again.

        Return a dict with `rewound_count` (the number of messages), `target_message` (the person's message)
        and `new_head_id` (the id of the last remaining message, or None).
        """
        target, epoch = check_integer("user_message_id", user_message_id), lease_epoch
        check_optional_integer("lease_epoch", epoch)

        def work(writer: Writer) -> dict[str, Any]:
            check_fence(writer, session_id, epoch)
            live = carried_context.list_live_ids(writer, session_id)
            row = writer.dict(ROW, target)
            if target not in live or row is None or row["role"] != "user":
                raise errors.make_error(
                    errors.InvalidArgument,
                    f"message {target} is not a user message in the context of {session_id!r}",
                )
            where, at = live.index(target), _choose_rewind_time(writer, session_id)
            going = set(live[where:])
            carried = [message_id for (message_id,) in writer.rows(carried_context.LIVE, session_id)]
            aside = [message_id for message_id in carried if message_id in going]
            if aside:
                carried_context.carry_messages(
                    writer, session_id, [message_id for message_id in carried if message_id not in going]
                )
                carried_context.set_aside_messages(writer, session_id, aside, at)
            for message_id in going:
                if writer.run(TAKE_BACK, at, message_id, session_id):
                    writer.run(NOTE_TAKEN, message_id)
            writer.run(COUNT_REWIND, session_id)
            recount_session(writer, session_id)
            return {
                "rewound_count": len(going),
                "target_message": decode_row(writer, row),
                "new_head_id": live[where - 1] if where else None,
            }

        return self._engine.write(work, share=False, repeatable=False)

    def restore(self, session_id: str, since_id: int = 0, lease_epoch: int | None = None) -> int:
        """Restore the rewound messages whose id is `since_id` or higher. Return the number of restored
        messages."""
        since, epoch = check_integer("since_id", since_id), check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> int:
            check_fence(writer, session_id, epoch)
            before = set(carried_context.list_live_ids(writer, session_id))
            back = carried_context.restore_set_aside(writer, session_id, since)
            if back:
                carried = [message_id for (message_id,) in writer.rows(carried_context.LIVE, session_id)]
                carried_context.carry_messages(writer, session_id, carried + back)
            writer.run(NOTE_GIVEN, session_id, since)
            writer.run(GIVE_BACK, session_id, since)
            recount_session(writer, session_id)
            return len(set(carried_context.list_live_ids(writer, session_id)) - before)

        return self._engine.write(work, share=False, repeatable=False)

    def restore_last(self, session_id: str, lease_epoch: int | None = None) -> int:
        """Undo the last rewind, unless a message was written after it. Return the number of restored
        messages.

        Consecutive rewinds with no message between them are undone together. Messages of earlier rewinds stay
        out.
        """
        epoch = check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> int:
            check_fence(writer, session_id, epoch)
            since = _find_last_rewind(writer, session_id)
            if since is None:
                return 0
            before = set(carried_context.list_live_ids(writer, session_id))
            back = carried_context.restore_set_aside_since(writer, session_id, since)
            if back:
                carried = [message_id for (message_id,) in writer.rows(carried_context.LIVE, session_id)]
                carried_context.carry_messages(writer, session_id, carried + back)
            for message_id in back:  # some are stored in the session itself: a summary, or moved messages
                if writer.run(GIVE_BACK_ONE, message_id, session_id):
                    writer.run(NOTE_TAKEN, message_id)
            writer.run(NOTE_GIVEN_SINCE, session_id, since)
            writer.run(GIVE_BACK_SINCE, session_id, since)
            recount_session(writer, session_id)
            return len(set(carried_context.list_live_ids(writer, session_id)) - before)

        return self._engine.write(work, share=False, repeatable=False)

    def list_recent_prompts(self, session_id: str, limit: int = 20) -> list[dict[str, Any]]:
        """Return the last messages of a person in the live context, newest first, as targets for a rewind."""
        most = check_integer("limit", limit)
        with self._engine.read() as reader:
            if reader.value(IS_TRASHED, session_id):
                return []
            live = reversed(carried_context.list_live_ids(reader, session_id))
            prompts = (row for message_id in live for row in reader.rows(FROM_PERSON, message_id))
            rows = list(islice(prompts, most if most >= 0 else None))
        return [
            {
                "id": message_id,
                "timestamp": at,
                "preview": make_prompt_preview(decode(content, kind), 80) or "",
            }
            for message_id, content, kind, at in rows
        ]


def _choose_rewind_time(writer: Writer, session_id: str) -> float:
    """Return a time for a new rewind of the session that is later than the times of all its earlier rewinds. It
    is the current time, unless an earlier rewind has the same or a later time.

    The order of these times determines which rewind is undone first.
    """
    own: float | None = writer.value(NEWEST_REWIND, session_id)
    times = [own, *carried_context.list_rewind_times(writer, session_id)]
    return max([clock.now(), *(time + SHORTEST_S for time in times if time is not None)])


def _find_last_rewind(reader: Reader, session_id: str) -> float | None:
    """Return the time of the oldest rewind of a session that `restore_last` would undo. None if there is
    nothing to restore.

    A message counts as written after a rewind if its id is higher than all ids that the rewind took out. A
    rewind that took out carried messages also took out all messages of the session itself.
    """
    own = {at: (first, last) for at, first, last in reader.rows(REWIND_GROUPS, session_id)}
    aside = carried_context.list_rewind_times(reader, session_id)
    last_message_id = reader.value(LAST_SAID, session_id)
    since: float | None = None
    if None in aside and last_message_id is None:
        since = max([clock.now(), *own])
    for at in sorted({*own, *(time for time in aside if time is not None)}, reverse=True):
        first, last = own.get(at, (None, None))
        if last_message_id is not None and (first is None or last_message_id > first):
            break
        since, last_message_id = at, last_message_id if last is None else last
    return since


def recount_session(writer: Writer, session_id: str) -> None:
    """Update the counters and the derived columns of a session whose messages have changed."""
    carried_context.recount_messages(writer, session_id)
    writer.run(derived.NOTE, session_id)
    derived.refresh(writer)
