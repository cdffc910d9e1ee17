"""Verbs of both handles, most of which the reference documents.

Each calls the manager of its subject, such as sessions or messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes.db.handle import Handle, Row
from hermes.store.sessions.lineage import Lineage
from hermes.store.sessions.listing import Listing
from hermes.store.sessions.messages import Messages, NewMessage, check_column_names
from hermes.store.sessions.sessions import Sessions, Usage
from hermes.store.sessions.titles import Titles

if TYPE_CHECKING:
    from hermes.store.values import SearchResults


class DocumentedVerbs(Handle):
    # ---------------------------------------------------------------- sessions

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End an open session. If it has ended already, its first end reason stays. An unknown id
        is ignored."""
        sessions = Sessions(self._write_access(session_id))
        self._ignore_unknown(lambda: sessions.end(session_id, end_reason), None)

    def reopen_session(self, session_id: str) -> None:
        """Open an ended session again. An unknown id is ignored."""
        sessions = Sessions(self._write_access(session_id))
        self._ignore_unknown(lambda: sessions.reopen(session_id), None)

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        """Replace the system prompt of a session. An unknown id is ignored."""
        sessions = Sessions(self._write_access(session_id))
        self._ignore_unknown(lambda: sessions.set_system_prompt(session_id, system_prompt), None)

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        api_call_count: int = 0,
        absolute: bool = False,
    ) -> None:
        """Add to the counters of a session. With `absolute=True`, set them instead. A missing session is
        created."""
        Sessions(self._write_access(session_id)).update_token_counts(
            session_id,
            Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cache_read_tokens=cache_read_tokens,
                cache_write_tokens=cache_write_tokens,
                reasoning_tokens=reasoning_tokens,
                api_call_count=api_call_count,
                estimated_cost_usd=estimated_cost_usd,
                actual_cost_usd=actual_cost_usd,
                cost_status=cost_status,
                cost_source=cost_source,
                pricing_version=pricing_version,
                billing_provider=billing_provider,
                billing_base_url=billing_base_url,
                billing_mode=billing_mode,
                model=model,
            ),
            absolute=absolute,
        )

    def get_session(self, session_id: str, *, include_trashed: bool = False) -> Row | None:
        """Return the row of a session, or None if it is unknown.

        A session in the trash counts as unknown unless `include_trashed` is set.
        """
        return Sessions(self._read_access()).get(session_id, include_trashed=include_trashed)

    def session_count(self, source: str | None = None) -> int:
        """Return the number of sessions. With `source`, count only the sessions of this source."""
        return Sessions(self._read_access()).count(source)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """Return the session with this id. If there is none, return the only session whose id begins with
        this text. Return None if no session matches, or if several match."""
        return Sessions(self._read_access()).resolve_id(session_id_or_prefix)

    # ---------------------------------------------------------------- messages

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        timestamp: float | None = None,
        *,
        platform_message_id: str | None = None,
        lease_epoch: int | None = None,
        replaces: int | None = None,
        **more: Any,
    ) -> int:
        """Store one message and return its id. When this method returns, the message survives a crash.

        If the session is unknown or in the trash, `UnknownSession` is raised, which is an
        `sqlite3.IntegrityError`. With `lease_epoch`, `LeaseLost` is raised if another process has taken over
        the conversation.

        `replaces` is the id of a partial answer (its `finish_reason` is `partial`). This message then takes
        the place of that answer. `more` are further columns that a caller may set; `store/columns.py` lists
        them.
        """
        columns = {
            "tool_name": tool_name,
            "tool_calls": tool_calls,
            "tool_call_id": tool_call_id,
            "token_count": token_count,
            "finish_reason": finish_reason,
            "reasoning": reasoning,
            "reasoning_content": reasoning_content,
            "reasoning_details": reasoning_details,
            "codex_reasoning_items": codex_reasoning_items,
            "codex_message_items": codex_message_items,
            "platform_message_id": platform_message_id,
        }
        if more:
            check_column_names(more)
            columns |= more
        return self._get_append(session_id)(
            NewMessage(session_id, role, content, columns, timestamp, lease_epoch, replaces=replaces)
        )

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], *, lease_epoch: int | None = None
    ) -> None:
        """Replace the messages of a session by `messages`. Unchanged rows keep their id and time.

        An empty list changes nothing. To empty a session, use `clear_messages`.
        """
        Messages(self._write_access(session_id)).replace(session_id, messages, lease_epoch)

    def clear_messages(self, session_id: str, *, lease_epoch: int | None = None) -> None:
        """Remove all messages of a session. A message that is also in the context of another session is moved
        to that session."""
        Messages(self._write_access(session_id)).clear(session_id, lease_epoch)

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        """Return whether this session already contains a message with this platform id. Used to recognise
        repeated deliveries."""
        return Messages(self._read_access()).has_platform_id(session_id, platform_message_id)

    def get_messages(self, session_id: str, *, include_trashed: bool = False) -> list[Row]:
        """Return the session's own messages in order, with all columns. Content and tool calls are decoded.

        If the session is in the trash, the list is empty unless `include_trashed` is set.
        """
        return Messages(self._read_access()).list_own(session_id, include_trashed=include_trashed)

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, *, include_trashed: bool = False
    ) -> list[Row]:
        """Return the current context in the format that a model accepts.

        With `include_ancestors`, return every message of the session and its ancestors once. If the session
        is in the trash, the list is empty unless `include_trashed` is set.
        """
        messages = Messages(self._read_access())
        return messages.read_conversation(session_id, include_ancestors, include_trashed=include_trashed)

    def message_count(self, session_id: str | None = None) -> int:
        """Return the number of messages of a session, or of all sessions that are not in the trash."""
        return Messages(self._read_access()).count(session_id)

    # ---------------------------------------------------------------- titles and lineage

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set the title of a session and return whether the session exists. An empty title removes the
        present one.

        If another conversation uses the title, `ValueError` is raised.
        """
        titles = Titles(self._write_access(session_id))
        return self._ignore_unknown(lambda: titles.set(session_id, title), False)

    def set_auto_title_if_empty(self, session_id: str, title: str) -> str | None:
        """Set `title` if the session has no title. If another session already uses `title`, a number such as
        ` (2)` is appended. Return the title that was set.

        Return None if the session already has a title.
        """
        titles = Titles(self._write_access(session_id))
        return self._ignore_unknown(lambda: titles.set_if_empty(session_id, title), None)

    def claim_auto_title(self, session_id: str, seconds: float = 60.0, *, most_times: int = 3) -> bool:
        """Claim the task of generating a title. Return whether the caller should now ask a model for one.

        Return False if the session has a title, if a caller in any process claimed the task less than
        `seconds` ago, or if the task was claimed `most_times` times.
        """
        return Titles(self._write_access(session_id)).claim(session_id, seconds, most_times)

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session. Return None if it has no title or is unknown."""
        return Titles(self._read_access()).get(session_id)

    def get_session_by_title(self, title: str) -> Row | None:
        """Return the row of the session with exactly this title, or None."""
        return Titles(self._read_access()).find_session(title)

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the id of the session that a title refers to, or None if no session has the title.

        If the session with this title was compressed, this is the newest session of its conversation.
        Otherwise it is the newest session with a numbered title, such as `plan #3` for `plan`. If there is
        none, it is the session with exactly this title.
        """
        return Titles(self._read_access()).resolve(title)

    def get_compression_tip(self, session_id: str) -> str:
        """Return the newest session that continues the given session by compression, or the session itself if
        none does."""
        return Lineage(self._read_access()).find_tip(session_id)

    def get_conversation_root(self, session_id: str) -> str | None:
        """Return the first session of the conversation, whose id is the conversation's permanent id. Return
        None if the session is unknown."""
        return Lineage(self._read_access()).find_root(session_id)

    def resolve_resume_session_id(self, session_id: str) -> str:
        """Return the session to resume. This is the given session or, if it has no messages, its first
        descendant that has some."""
        return Lineage(self._read_access()).find_resume_target(session_id)

    # ---------------------------------------------------------------- lists and search

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
    ) -> list[Row]:
        """Return one row per conversation, with `preview` and `last_active`.

        The most recently started conversation comes first or, with `order_by_last_active`, the most recently
        active. With `include_children`, return one row per session, including continuations and subagents.
        With `project_compression_tips=False`, the row of a compressed conversation is that of its first
        session.
        """
        return Listing(self._read_access()).list_rich(
            source,
            exclude_sources,
            limit,
            offset,
            include_children,
            project_compression_tips,
            order_by_last_active,
        )

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[Row]:
        """Return every session, including children, most recent activity first."""
        return Listing(self._read_access()).list_by_activity(source, limit, offset)

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        *,
        sort: str = "relevance",
        after: float | None = None,
        before: float | None = None,
        relax: bool | None = None,
    ) -> SearchResults:
        """Return the messages that match words, "phrases", AND, OR, NOT and `prefix*`. Any text is a valid
        query.

        If nothing matches, words of three or more characters that no message contains are searched for as
        parts of words, and `results.partial` is set. If a question still matches nothing, the most similar
        messages are returned, and `results.relaxed` is set. With `relax=True`, this is done for any query.
        With `relax=False`, only exact matches are returned.
        """
        from hermes.recall.message_search import MessageSearch
        from hermes.recall.query.search_arguments import make_request

        search = MessageSearch(self._read_access())
        request = make_request(
            source_filter,
            exclude_sources,
            role_filter,
            after,
            before,
            limit=limit,
            offset=offset,
            sort=sort,
        )
        return search.search(query, request, relax)

    # ---------------------------------------------------------------- export and import

    def export_session(self, session_id: str, *, redact: bool = False) -> Row | None:
        """Return a session with all its messages, or None if it is unknown. With `redact`, secrets are
        masked."""
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._read_access()).export(session_id, redact)

    def export_all(self, source: str | None = None, *, redact: bool = False) -> list[Row]:
        """Return every session with its messages. With `redact`, secrets are masked.

        All sessions are in memory at once. To read one at a time, use `export_each`.
        """
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._read_access()).export_all(source, redact)

    def export_each(self, source: str | None = None, *, redact: bool = False) -> Iterator[Row]:
        """Yield the sessions of `export_all`. Each is read only when it is requested.

        A session created after the call is not included. A session deleted before it is requested is left
        out. With `redact`, secrets are masked.
        """
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._read_access()).export_each(source, redact)
