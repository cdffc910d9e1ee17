"""Creation of child sessions: continuation after compression, branch, reset and delegated task.

Each operation is one transaction. It inserts the child with its title and place in the family, and stores the
context that the child carries. If the child replaces its parent, the transaction also ends the parent and
moves its chats to the child. After a failure or a crash the family is unchanged. No message is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from hermes import clock, errors
from hermes.session_kinds import classify_session
from hermes.store import derived
from hermes.store.arguments import (
    check_integer,
    check_optional_integer,
    check_optional_mapping,
    check_optional_text,
    check_time,
    require_text,
)
from hermes.store.columns import list_session_names
from hermes.store.content import json_or_none
from hermes.store.engine import Access, Reader, Writer
from hermes.store.sessions import carried_context
from hermes.store.sessions.lineage import find_tip
from hermes.store.sessions.messages import ROOT_ACTIVE, check_fence, insert_text
from hermes.store.sessions.sessions import (
    END,
    EXISTS,
    REOPEN,
    SETTLE_CHILDREN,
    check_new_id,
    new_session_id,
    record_process,
)
from hermes.store.sessions.titles import (
    clear_title,
    find_free_title,
    find_next_title,
    sanitize_title,
    split_number,
)
from hermes.store.statements import join_columns

PARENT = """SELECT title, title_by, owner, system_prompt, root_id, source, kind, pinned_at, archived
    FROM sessions WHERE id = ?"""
# A child has the owner, chat and workspace of its parent. It also has the parent's fence, because one lease
# covers both.
INHERITED = join_columns(list_session_names(lambda column: column.is_inherited))
INHERIT = " ".join(
    (
        """INSERT INTO sessions (id, parent_session_id, relation, started_at, last_active, title, title_by, model,
        model_config, system_prompt, kind, root_id, listed, conversation_active, pinned_at, archived,""",
        INHERITED,
        ") SELECT ?, id, ?, ?, ?, ?, ?, coalesce(?, model), coalesce(?, model_config), ?, ?, ?, ?, ?, ?, ?,",
        INHERITED,
        "FROM sessions WHERE id = ? ON CONFLICT (id) DO NOTHING",
    )
)
# A compression overwrites the end of a parent that had ended before and was reopened.
END_BY_COMPRESSION = "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?"
CONTINUED_AS = """SELECT id FROM sessions WHERE parent_session_id = ? AND relation = 'compression' AND id <> ?
    AND trashed_at IS NULL ORDER BY started_at DESC, id DESC LIMIT 1"""
COUNT_SUMMARY = "UPDATE sessions SET message_count = 1 WHERE id = ?"

# A reset can be undone only if its session is open, has not been reset again and has a parent outside the
# trash.
WAS_RESET = """SELECT p.id FROM sessions s JOIN sessions p ON p.id = s.parent_session_id
    WHERE s.id = ? AND s.relation = 'reset' AND s.ended_at IS NULL AND p.trashed_at IS NULL"""
SAID_SINCE = "SELECT 1 FROM messages WHERE session_id = ? AND role = 'user' LIMIT 1"
END_UNDONE = "UPDATE sessions SET ended_at = ?, end_reason = 'reset_undone' WHERE id = ?"


class Child(NamedTuple):
    """The values that a caller can set on a child session. All other values are inherited from the parent."""

    session_id: str
    title: str | None
    model: str | None
    model_config: str | None
    system_prompt: str | None
    started_at: float

    @classmethod
    def of(
        cls,
        session_id: str | None = None,
        title: str | None = None,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        started_at: float | None = None,
    ) -> Child:
        return cls(
            new_session_id() if session_id is None else check_new_id(session_id),
            sanitize_title(title),
            check_optional_text("model", model),
            json_or_none(check_optional_mapping("model_config", model_config)),
            check_optional_text("system_prompt", system_prompt),
            clock.now() if started_at is None else check_time("started_at", started_at),
        )


class ChatRouting(Protocol):
    """The routes from chats to sessions, implemented by `store.chats.routing`.

    This protocol exists because `store.chats` imports this folder, so that this folder cannot import
    `store.chats`.
    """

    def move_chats(self, writer: Writer, from_session: str, to_session: str, at: float) -> int: ...

    def move_chat(
        self, writer: Writer, session_key: str, from_session: str, to_session: str, at: float
    ) -> None: ...

    def is_in_other_chat(self, reader: Reader, session_id: str, session_key: str) -> bool: ...


class Families:
    def __init__(self, engine: Access, routing: ChatRouting) -> None:
        self._engine = engine
        self._routing = routing

    def begin_continuation(
        self,
        parent: str,
        summary: str,
        carried: Iterable[int],
        head: Iterable[int],
        child: Child,
        lease_epoch: int | None,
    ) -> str:
        """End a session by compression. Return the id of the child, which carries the summary and some
        messages of the parent."""
        text = require_text("summary", summary)
        if not text.strip():
            raise errors.make_error(errors.InvalidArgument, "summary must not be empty")
        before, behind, uid = _check_ids("head", head), _check_ids("carried", carried), clock.make_uid()
        if set(before) & set(behind):
            raise errors.make_error(
                errors.InvalidArgument, "head and carried must not contain the same message"
            )

        def find_carried(writer: Writer) -> list[int]:
            ahead = writer.value(CONTINUED_AS, parent, parent)
            if ahead is not None:
                raise errors.AlreadyContinued(
                    f"session {parent!r} was already compressed; it continues as {find_tip(writer, ahead)!r}"
                )
            live = set(carried_context.list_live_ids(writer, parent))
            for message_id in (*before, *behind):
                if message_id not in live:
                    raise _build_not_in_context(message_id, parent)
            return before + behind

        def store_summary(writer: Writer) -> None:
            summary_id = insert_text(writer, child.session_id, "system", text, child.started_at, uid)
            writer.run(COUNT_SUMMARY, child.session_id)
            carried_context.carry_messages(writer, child.session_id, [*before, summary_id, *behind])

        return self._begin(
            parent, child, lease_epoch, "compression", "compression", find_carried, store_summary
        )

    def branch(
        self,
        parent: str,
        at_message: int | None,
        child: Child,
        end_parent: bool,
        lease_epoch: int | None,
        session_key: str | None = None,
    ) -> str:
        """Start a separate conversation that carries a session's context, up to the message `at_message`.
        Return the id of the new session.

        With a `session_key`, only that chat moves to the new conversation.
        """
        key = check_optional_text("session_key", session_key)
        last = None if at_message is None else check_integer("at_message", at_message)

        def find_carried(writer: Writer) -> list[int]:
            live = carried_context.list_live_ids(writer, parent)
            if last is None:
                return live
            if last not in live:
                raise _build_not_in_context(last, parent)
            return live[: live.index(last) + 1]

        reason = "branched" if end_parent else None
        return self._begin(parent, child, lease_epoch, "branch", reason, find_carried, only=key)

    def reset(
        self, parent: str, reason: str, child: Child, lease_epoch: int | None, session_key: str | None = None
    ) -> str:
        """Start a new, empty conversation that is linked to the old one. Return the id of its session.

        The chats of the old conversation move to the new one. With a `session_key`, only that chat moves, and
        the old conversation stays open if other chats use it.
        """
        key = check_optional_text("session_key", session_key)
        return self._begin(parent, child, lease_epoch, "reset", require_text("reason", reason), only=key)

    def delegate(self, parent: str, child: Child, lease_epoch: int | None) -> str:
        """Create a session for a delegated task. It appears in no list, and the parent's chats do not move."""
        return self._begin(parent, child, lease_epoch, "delegate", None)

    def _begin(
        self,
        parent: str,
        child: Child,
        lease_epoch: int | None,
        relation: str,
        end_reason: str | None,
        find_carried: Callable[[Writer], list[int]] | None = None,
        store_summary: Callable[[Writer], None] | None = None,
        only: str | None = None,
    ) -> str:
        epoch, at = check_optional_integer("lease_epoch", lease_epoch), child.started_at

        def work(writer: Writer) -> str:
            check_fence(writer, parent, epoch)
            above = writer.dict(PARENT, parent)
            assert above is not None
            if writer.repeating and writer.value(EXISTS, child.session_id):
                return child.session_id
            carried = find_carried(writer) if find_carried is not None else []
            title, by = _choose_title(writer, child, relation, above)
            if end_reason is not None and not (only and self._routing.is_in_other_chat(writer, parent, only)):
                _end_parent(writer, parent, end_reason, at)
            values = (relation, at, at, title, by, child.model, child.model_config)
            place = (_choose_prompt(child, relation, above), *_make_place(child, relation, above, parent))
            if not writer.run(INHERIT, child.session_id, *values, *place, parent):
                raise errors.make_error(
                    errors.InvalidArgument, f"session {child.session_id!r} already exists"
                )
            record_process(writer, child.session_id)
            if store_summary is not None:
                store_summary(writer)
            else:
                carried_context.carry_messages(writer, child.session_id, carried)
            writer.run(ROOT_ACTIVE, at, above["root_id"] if relation == "compression" else None, at)
            if only is not None:
                self._routing.move_chat(writer, only, parent, child.session_id, at)
            elif end_reason is not None:  # a parent that stays open keeps its chats
                self._routing.move_chats(writer, parent, child.session_id, at)
            derived.refresh(writer)
            return child.session_id

        return self._engine.write(work, share=False)

    def undo_reset(self, session_id: str, lease_epoch: int | None) -> str:
        """Undo a reset: resume the earlier conversation, and return the id of its live session. Raise an
        error if a person has written since the reset."""
        at, epoch = clock.now(), check_optional_integer("lease_epoch", lease_epoch)

        def work(writer: Writer) -> str:
            check_fence(writer, session_id, epoch)
            before = writer.value(WAS_RESET, session_id)
            if before is None:
                raise errors.make_error(
                    errors.InvalidArgument,
                    f"session {session_id!r} was not started by a reset that can still be undone",
                )
            if writer.value(SAID_SINCE, session_id):
                raise errors.make_error(
                    errors.InvalidArgument,
                    f"session {session_id!r} already has new messages; resume {before!r} instead",
                )
            live = find_tip(writer, before)
            writer.run(REOPEN, live)
            record_process(writer, live)
            writer.run(END_UNDONE, at, session_id)
            clear_title(writer, session_id)  # another session can now use the title
            self._routing.move_chats(writer, session_id, live, at)
            derived.refresh(writer)
            return live

        return self._engine.write(work)


def _choose_title(
    writer: Writer, child: Child, relation: str, above: dict[str, Any]
) -> tuple[str | None, str | None]:
    """Return (title, title_by) of a child. A title that the caller passes is used first. Otherwise a
    continuation gets the parent's title with the next number, and a branch gets the parent's title with
    ` (2)`."""
    if child.title is not None:
        return find_free_title(writer, child.title, above["owner"], child.session_id), "person"
    old, by = above["title"], above["title_by"]
    if old is None or relation not in ("compression", "branch"):
        return None, None
    if relation == "branch":
        return find_free_title(writer, old, above["owner"], child.session_id), by
    return find_next_title(writer, split_number(old)[0] or old, above["owner"]), by


def _choose_prompt(child: Child, relation: str, above: dict[str, Any]) -> str | None:
    """Return the system prompt of a child, or None if it has none yet. A prompt that the caller sets is used
    first. Otherwise a branch inherits the prompt of its parent, so that the provider's prefix cache stays
    valid."""
    return child.system_prompt or (above["system_prompt"] if relation == "branch" else None)


def _make_place(child: Child, relation: str, above: dict[str, Any], parent: str) -> tuple[Any, ...]:
    """Return the values of the columns (kind, root_id, listed, conversation_active, pinned_at, archived) for a
    new child session. `parent` is the id of its parent, and `above` is the row of the parent."""
    if relation == "compression":
        return above["kind"], above["root_id"] or parent, 0, None, above["pinned_at"], above["archived"]
    kind = classify_session(above["source"], child=relation == "delegate")
    return kind, child.session_id, 0 if relation == "delegate" else 1, child.started_at, None, 0


def _end_parent(writer: Writer, parent: str, reason: str, at: float) -> None:
    if derived.find_relation(reason) is not None:
        writer.run(SETTLE_CHILDREN, parent)
    writer.run(END_BY_COMPRESSION if reason == "compression" else END, at, reason, parent)


def _build_not_in_context(message_id: int, session_id: str) -> errors.HermesError:
    return errors.make_error(
        errors.InvalidArgument, f"message {message_id} is not in the context of session {session_id!r}"
    )


def _check_ids(name: str, ids: Iterable[int]) -> list[int]:
    checked = [check_integer(name, message_id) for message_id in ids]
    if len(set(checked)) != len(checked):
        raise errors.make_error(errors.InvalidArgument, f"{name} contains a message twice")
    return checked
