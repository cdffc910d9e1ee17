"""Redaction: removal of one message, because its author deleted it on its platform. It cannot be restored.

If the message is the last one of a person, it is deleted together with the answer after it. An older message
keeps its row, because later messages refer to it, but a note replaces its content and its attachments. All
versions of an edited message are removed, in all sessions of the conversation and of the chat.
"""

from __future__ import annotations

from collections.abc import Iterable

from hermes.store.arguments import check_optional_integer, require_text
from hermes.store.engine import Access, Writer
from hermes.store.sessions import blobs, carried_context
from hermes.store.sessions.messages import check_fence
from hermes.store.sessions.rewind import FROM_PERSON, NOTE_TAKEN, recount_session

REMOVED = "[This message was deleted by its author.]"

FROM_CHAT = """SELECT m.id, m.session_id, m.platform_message_id FROM messages m JOIN sessions s ON s.id = m.session_id
    JOIN sessions here ON here.id = ?
    WHERE (s.root_id = here.root_id OR (s.source = here.source AND s.session_key = here.session_key))
    AND m.role = 'user' AND m.platform_message_id IS NOT NULL"""
SHOWN = "SELECT hash FROM blob_refs WHERE message_id = ?"
OVERWRITE = "UPDATE messages SET content = ?, content_kind = 'text' WHERE id = ?"
DELETE = "DELETE FROM messages WHERE id = ? AND session_id = ?"


class Redactions:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def redact(
        self, session_id: str, platform_message_id: str, separator: str, lease_epoch: int | None = None
    ) -> list[str]:
        """Remove the message with the id `platform_message_id` of its platform, in all sessions of the
        conversation and of the chat to which `session_id` belongs. Also remove its edited versions, whose ids
        have `separator` and a suffix at the end. Return the ids of the sessions that changed. The list is empty
        if the message is not stored."""
        message, epoch = require_text("platform_message_id", platform_message_id), lease_epoch
        check_optional_integer("lease_epoch", epoch)
        mark = require_text("separator", separator)

        def work(writer: Writer) -> list[str]:
            check_fence(writer, session_id, epoch)
            # A version of an edited message has the id of the message and a suffix after the separator.
            found: dict[int, str] = {
                message_id: stored_in
                for message_id, stored_in, name in writer.rows(FROM_CHAT, session_id)
                if str(name).partition(mark)[0] == message
            }
            if not found:
                return []
            gone = _delete_last(writer, session_id, found)
            hashes = [*_remove_attachments(writer, [*found, *gone])]
            for message_id in found.keys() - gone:
                writer.run(OVERWRITE, REMOVED, message_id)
                writer.run(NOTE_TAKEN, message_id)
            blobs.drop_unused(writer, hashes)
            changed = sorted({session_id, *found.values()})
            for changed_id in changed:
                recount_session(writer, changed_id)
            return changed

        return self._engine.write(work, share=False, repeatable=False)


def _delete_last(writer: Writer, session_id: str, versions: Iterable[int]) -> set[int]:
    """Delete a person's message with everything after it, if it is the last message of a person in the live
    context of the session. `versions` are the ids of all stored versions of the message. Return the ids of the
    deleted messages; the set is empty if another message is the last one.

    Messages that are stored in an earlier session are not deleted, but this session no longer carries them.
    """
    live = carried_context.list_live_ids(writer, session_id)
    prompts = (message_id for message_id in reversed(live) if writer.row(FROM_PERSON, message_id))
    last = next(prompts, None)
    if last is None or last not in set(versions):
        return set()
    going = live[live.index(last) :]
    carried = [message_id for (message_id,) in writer.rows(carried_context.LIVE, session_id)]
    kept = [message_id for message_id in carried if message_id not in going]
    if len(kept) < len(carried):
        carried_context.carry_messages(writer, session_id, kept)
    for message_id in going:
        writer.run(NOTE_TAKEN, message_id)
    return {message_id for message_id in going if writer.run(DELETE, message_id, session_id)}


def _remove_attachments(writer: Writer, message_ids: Iterable[int]) -> Iterable[bytes]:
    for message_id in dict.fromkeys(message_ids):
        yield from (row[0] for row in writer.rows(SHOWN, message_id))
        blobs.detach_blobs(writer, message_id)
