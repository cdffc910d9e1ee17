"""Verbs on conversations that the reference does not have, for both handles.

Managers are imported on first use, so that opening a store stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hermes.db.handle import Handle, Row
from hermes.store.chats import routing
from hermes.store.sessions.lineage import Lineage, Relative
from hermes.store.sessions.messages import Messages

if TYPE_CHECKING:
    from hermes.recall.interactive_search import FoundConversations
    from hermes.recall.message_search import FoundMessages
    from hermes.recall.tool.passages import Passages
    from hermes.store.sessions.families import Child
    from hermes.store.sessions.name_resolution import ResolvedName
    from hermes.store.sessions.selection import Outline, Selection
    from hermes.store.values import SearchResults


class ConversationVerbs(Handle):
    # ---------------------------------------------------------------- families

    def begin_continuation(
        self,
        parent: str,
        summary: str,
        carried: Iterable[int] = (),
        *,
        head: Iterable[int] = (),
        lease_epoch: int | None = None,
        **child: Any,
    ) -> str:
        """Compress a session: end it and continue in a child with a summary. Return the id of the child.

        The context of the child consists of `head`, the summary, `carried`, and then its own messages. `head`
        and `carried` are ids of messages in the parent's context.

        `child` sets values of the child: session_id, title, model, model_config, system_prompt and
        started_at. `branch`, `reset` and `delegate` accept the same values.
        """
        from hermes.store.sessions.families import Families

        return Families(self._write_access(parent), routing).begin_continuation(
            parent, summary, carried, head, self._make_child(**child), lease_epoch
        )

    def branch(
        self,
        session: str,
        at_message: int | None = None,
        *,
        end_parent: bool = True,
        lease_epoch: int | None = None,
        session_key: str | None = None,
        **child: Any,
    ) -> str:
        """Start a new conversation that has the context of `session` up to the message `at_message`. Return
        the id of the new session.

        No message is copied. The parent ends, and its chats move to the branch. With `end_parent=False`, the
        parent stays open and keeps its chats. With `session_key`, only that chat moves, and the parent stays
        open if another chat uses it.
        """
        from hermes.store.sessions.families import Families

        return Families(self._write_access(session), routing).branch(
            session, at_message, self._make_child(**child), end_parent, lease_epoch, session_key
        )

    def reset(
        self,
        session: str,
        *,
        reason: str = "session_reset",
        lease_epoch: int | None = None,
        session_key: str | None = None,
        **child: Any,
    ) -> str:
        """End a conversation and start a new one in its chats. Return the id of the new session.

        With `session_key`, only that chat moves to the new conversation, and the old one stays open if
        another chat uses it.
        """
        from hermes.store.sessions.families import Families

        return Families(self._write_access(session), routing).reset(
            session, reason, self._make_child(**child), lease_epoch, session_key
        )

    def undo_reset(self, session_id: str, *, lease_epoch: int | None = None) -> str:
        """Undo a reset: resume the conversation before it, and return the id of its live session. Raise
        `InvalidArgument` if a person has already written in the new conversation."""
        from hermes.store.sessions.families import Families

        return Families(self._write_access(session_id), routing).undo_reset(session_id, lease_epoch)

    def delegate(self, parent: str, *, lease_epoch: int | None = None, **child: Any) -> str:
        """Create a session for a subagent, which works on a task for the session `parent`. Return the id of
        the new session."""
        from hermes.store.sessions.families import Families

        return Families(self._write_access(parent), routing).delegate(
            parent, self._make_child(**child), lease_epoch
        )

    def get_context(self, session_id: str) -> list[Row]:
        """Return the context for a model call: the messages of `get_messages_as_conversation`, each with its
        `id`."""
        return Messages(self._read_access()).read_context(session_id)

    # ---------------------------------------------------------------- titles and lineage

    def tip(self, name: str) -> str | None:
        """Return the newest session of the conversation named by an id, the beginning of an id, or a title.
        Return None if there is none."""
        from hermes.store.sessions.sessions import Sessions
        from hermes.store.sessions.titles import Titles

        session_id = Sessions(self._read_access()).resolve_id(name) if name else None
        if session_id is None:
            session_id = Titles(self._read_access()).resolve(name)
        return None if session_id is None else Lineage(self._read_access()).find_tip(session_id)

    def named(self, name: str, *, preferred_owner: str | None = None) -> ResolvedName:
        """Return the session that a person means by `name`: an id, a title, or a part of either. If several
        match, return the candidates.

        On the whole store, several owners can use the same title. Such a title is ambiguous unless
        `preferred_owner` is one of these owners.
        """
        from hermes.store.sessions.name_resolution import NameResolver

        every = self._sees_every_owner
        return NameResolver(self._read_access()).resolve(
            name, every_owner=every, preferred_owner=preferred_owner
        )

    def starting_with(self, start: str, limit: int = 50) -> list[Row]:
        """Return sessions whose id or title begins with `start`, most recent activity first. Used for shell
        completion."""
        from hermes.store.sessions.name_resolution import NameResolver

        return NameResolver(self._read_access()).list_starting_with(start, limit)

    def select_sessions(self, selection: Selection, *, subagents: bool = False) -> list[str]:
        """Return the ids of all sessions of the selected conversations. The conversation with the newest
        activity comes first. With `subagents`, the sessions of their subagents are included."""
        from hermes.store.sessions.selection import Selector

        return Selector(self._read_access()).list_sessions(selection, subagents)

    def outlines(self, session_ids: Iterable[str], *, whole: bool = False) -> list[Outline]:
        """Return an outline of each of these sessions: the session without its messages. With `whole`, return outlines
        of all sessions of their conversations."""
        from hermes.store.sessions.selection import Selector

        return Selector(self._read_access()).list_outlines(session_ids, whole)

    def family(self, session_id: str) -> Relative | None:
        """Return the family of a session as a tree: continuations, branches, resets, subagents. Return None
        if the session is unknown."""
        return Lineage(self._read_access()).read_family(session_id)

    # ---------------------------------------------------------------- rewind

    def drop_partial(self, session_id: str, message_id: int, *, lease_epoch: int | None = None) -> bool:
        """Delete an answer that was stored as partial. Return False if there is no partial answer with this
        id."""
        return Messages(self._write_access(session_id)).drop_partial(session_id, message_id, lease_epoch)

    def rewind_to_message(
        self, session_id: str, user_message_id: int, *, lease_epoch: int | None = None
    ) -> Row:
        """Rewind: remove a person's message and all messages after it from the context and from search. They
        can be restored.

        The result has `rewound_count`, `target_message` (to be edited and sent again) and `new_head_id`.
        """
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._write_access(session_id)).rewind_to(session_id, user_message_id, lease_epoch)

    def redact_message(
        self,
        session_id: str,
        platform_message_id: str,
        separator: str = ":edit:",
        *,
        lease_epoch: int | None = None,
    ) -> list[str]:
        """Remove a message that its author deleted on its platform, with all its edited versions, from all
        sessions of the conversation and the chat. The message cannot be restored. Return the ids of the
        changed sessions. The list is empty if the message is not stored.

        If it is the last message of a person, the answer to it is deleted too. The content of an older
        message is replaced by a note. The id of an edited version is the id of the message, followed by
        `separator` and any suffix.
        """
        from hermes.store.sessions.redaction import Redactions

        return Redactions(self._write_access(session_id)).redact(
            session_id, platform_message_id, separator, lease_epoch
        )

    def restore_rewound(self, session_id: str, since_id: int = 0, *, lease_epoch: int | None = None) -> int:
        """Restore the rewound messages whose id is `since_id` or higher. Return their number."""
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._write_access(session_id)).restore(session_id, since_id, lease_epoch)

    def restore_last_rewind(self, session_id: str, *, lease_epoch: int | None = None) -> int:
        """Restore the messages of the last rewind, unless the conversation has continued since. Return their
        number."""
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._write_access(session_id)).restore_last(session_id, lease_epoch)

    def list_recent_user_messages(self, session_id: str, limit: int = 20) -> list[Row]:
        """Return the person's last messages, newest first. Each is a possible target of
        `rewind_to_message`."""
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._read_access()).list_recent_prompts(session_id, limit)

    # ---------------------------------------------------------------- lists and search

    @property
    def passages(self) -> Passages:
        """A reader of conversations in pieces of limited size. The tool `session_search` uses it."""
        from hermes.recall.tool.passages import Passages

        return Passages(self._read_access())

    def search(self, query: str, limit: int = 20, offset: int = 0) -> FoundMessages:
        """Return the messages that match a query as people type it. In addition to the operators of
        `search_messages`, it can contain `*part*`, `(groups)`, fields and dates."""
        from hermes.recall.message_search import PromptSearch

        return PromptSearch(self._read_access()).messages(query, limit, offset)

    def search_conversations(
        self,
        query: str,
        limit: int = 20,
        *,
        sources: Sequence[str] | None = None,
        after: float | None = None,
        before: float | None = None,
        include_hidden: bool = False,
        unfinished: bool = False,
        trash: bool = False,
    ) -> FoundConversations:
        """Search titles and messages with a query as people type it (see `search`). Return one row per
        conversation, best first.

        Conversations that lists hide, such as jobs and archived ones, are only counted, unless
        `include_hidden` is set. With `unfinished`, the query is still being typed, so its last word also
        matches as a prefix. With `trash`, the field `is:trashed` searches the trash.
        """
        from hermes.recall.interactive_search import InteractiveSearch

        return InteractiveSearch(self._read_access()).search(
            query,
            limit,
            sources=sources,
            after=after,
            before=before,
            include_hidden=include_hidden,
            unfinished=unfinished,
            trash=trash,
        )

    def search_sessions_ranked(
        self,
        query: str | Sequence[str],
        limit: int = 10,
        *,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        after: float | None = None,
        before: float | None = None,
        exclude_session: str | None = None,
        include_hidden: bool = False,
        sort: str = "relevance",
    ) -> SearchResults:
        """Return one row per conversation, best first. `query` is a question, or a list of several phrasings
        of one question. Conversations that lists hide, such as jobs and archived ones, are left out, unless
        `include_hidden` is set."""
        from hermes.recall.query.search_arguments import make_request
        from hermes.recall.ranking.ranked_search import RankedSearch

        search = RankedSearch(self._read_access())
        request = make_request(
            source_filter, exclude_sources, role_filter, after, before, limit=limit, sort=sort
        )
        return search.search(query, request, exclude_session=exclude_session, include_hidden=include_hidden)

    def _make_child(self, **fields: Any) -> Child:
        """Return the column values of a new child session."""
        from hermes.store.sessions.families import Child

        return Child.of(**fields)
