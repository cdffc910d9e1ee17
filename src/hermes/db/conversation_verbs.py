"""What a store can do with conversations beyond the documented interface; both handles have it.

Each verb fetches its manager when it is called: most programs use few of them, and opening a store stays light.
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
        """Compress a session: end it, and go on in a child that knows a summary and carries some messages; its id.

        The child's context is `head`, the summary, `carried` (message ids of the parent's context), then its own.
        `child` may say session_id, title, model, model_config, system_prompt and started_at, here and below.
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
        """A conversation of its own with the context of another, up to a message of it; its id. Nothing is copied.

        The parent ends and its chats go on in the branch, unless `end_parent` is False: then it keeps both. With a
        `session_key` only that chat does.
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
        """End a conversation and start afresh in the same chats, or in one of them alone; the new session's id."""
        from hermes.store.sessions.families import Families

        return Families(self._write_access(session), routing).reset(
            session, reason, self._make_child(**child), lease_epoch, session_key
        )

    def undo_reset(self, session_id: str, *, lease_epoch: int | None = None) -> str:
        """Back to the conversation that a reset left, while nobody has said anything in the new one; its id."""
        from hermes.store.sessions.families import Families

        return Families(self._write_access(session_id), routing).undo_reset(session_id, lease_epoch)

    def delegate(self, parent: str, *, lease_epoch: int | None = None, **child: Any) -> str:
        """A session for a task that another one hands out; its id."""
        from hermes.store.sessions.families import Families

        return Families(self._write_access(parent), routing).delegate(
            parent, self._make_child(**child), lease_epoch
        )

    def get_context(self, session_id: str) -> list[Row]:
        """What a model is given, as `get_messages_as_conversation`, each message with its `id`."""
        return Messages(self._read_access()).read_context(session_id)

    def tip(self, name: str) -> str | None:
        """Where the conversation goes on that an id, the beginning of one, or a title belongs to."""
        from hermes.store.sessions.sessions import Sessions
        from hermes.store.sessions.titles import Titles

        session_id = Sessions(self._read_access()).resolve_id(name) if name else None
        if session_id is None:
            session_id = Titles(self._read_access()).resolve(name)
        return None if session_id is None else Lineage(self._read_access()).find_tip(session_id)

    def named(self, name: str, *, preferred_owner: str | None = None) -> ResolvedName:
        """Which session a person means by an id, the beginning of one, or (part of) a title; or those it might be.

        On the whole store a title that several owners use is ambiguous, unless the preferred owner is one of them.
        """
        from hermes.store.sessions.name_resolution import NameResolver

        every = self._sees_every_owner
        return NameResolver(self._read_access()).resolve(
            name, every_owner=every, preferred_owner=preferred_owner
        )

    def starting_with(self, start: str, limit: int = 50) -> list[Row]:
        """Sessions whose id or title starts so, newest activity first: what a shell completes."""
        from hermes.store.sessions.name_resolution import NameResolver

        return NameResolver(self._read_access()).list_starting_with(start, limit)

    def select_sessions(self, selection: Selection, *, subagents: bool = False) -> list[str]:
        """The ids of all sessions of the conversations that a selection means, newest activity first."""
        from hermes.store.sessions.selection import Selector

        return Selector(self._read_access()).list_sessions(selection, subagents)

    def outlines(self, session_ids: Iterable[str], *, whole: bool = False) -> list[Outline]:
        """Those sessions without their messages; with `whole` every session of their conversations."""
        from hermes.store.sessions.selection import Selector

        return Selector(self._read_access()).list_outlines(session_ids, whole)

    def family(self, session_id: str) -> Relative | None:
        """Everything that came out of one first session, as a tree: continuations, branches, resets, delegates."""
        return Lineage(self._read_access()).read_family(session_id)

    def rewind_to_message(
        self, session_id: str, user_message_id: int, *, lease_epoch: int | None = None
    ) -> Row:
        """Take a person's message and all after it out of context and search.

        The answer holds `rewound_count`, `target_message` (to be said again) and `new_head_id`.
        """
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._write_access(session_id)).rewind_to(session_id, user_message_id, lease_epoch)

    def restore_rewound(self, session_id: str, since_id: int = 0, *, lease_epoch: int | None = None) -> int:
        """Bring rewound messages back, from an id on; how many."""
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._write_access(session_id)).restore(session_id, since_id, lease_epoch)

    def restore_last_rewind(self, session_id: str, *, lease_epoch: int | None = None) -> int:
        """Bring back what was taken back last, unless something was said since; how many messages."""
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._write_access(session_id)).restore_last(session_id, lease_epoch)

    def list_recent_user_messages(self, session_id: str, limit: int = 20) -> list[Row]:
        from hermes.store.sessions.rewind import Rewinds

        return Rewinds(self._read_access()).list_recent_prompts(session_id, limit)

    @property
    def passages(self) -> Passages:
        """Pieces of conversations, read within bounds: what `session_search` shows."""
        from hermes.recall.tool.passages import Passages

        return Passages(self._read_access())

    # ---------------------------------------------------------------- finding

    def search(self, query: str, limit: int = 20, offset: int = 0) -> FoundMessages:
        """Messages in the language of every surface: also *part*, (groups), fields and dates. See docs/search.md."""
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
    ) -> FoundConversations:
        """One row per conversation for what a person types: the language of `search`, titles too, the best first.

        `unfinished`: it is still being typed, so that its last word counts as the beginning of one, too.
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
        """One row per conversation, the best first, for a question or a few phrasings of one."""
        from hermes.recall.ranking.ranked_search import RankedSearch

        return RankedSearch(self._read_access()).search(
            query,
            limit,
            source_filter=source_filter,
            exclude_sources=exclude_sources,
            role_filter=role_filter,
            after=after,
            before=before,
            exclude_session=exclude_session,
            include_hidden=include_hidden,
            sort=sort,
        )

    def _make_child(self, **fields: Any) -> Child:
        """What a caller says of a session that comes out of another."""
        from hermes.store.sessions.families import Child

        return Child.of(**fields)
