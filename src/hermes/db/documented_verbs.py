"""The documented verbs that both handles have. Every one is a line into the manager of its noun."""

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
        """End an open session. The first reason stays; an unknown id is no error."""
        sessions = Sessions(self._write_access(session_id))
        self._ignore_unknown(lambda: sessions.end(session_id, end_reason), None)

    def reopen_session(self, session_id: str) -> None:
        sessions = Sessions(self._write_access(session_id))
        self._ignore_unknown(lambda: sessions.reopen(session_id), None)

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
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
        """Add to the counters, or set them (`absolute=True`). The session is made if it is not there."""
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
        """The session's row; None if there is none, or if it lies in the trash and the caller does not ask for that."""
        return Sessions(self._read_access()).get(session_id, include_trashed=include_trashed)

    def session_count(self, source: str | None = None) -> int:
        return Sessions(self._read_access()).count(source)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The exact id, else the only id that starts so."""
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
        **more: Any,
    ) -> int:
        """Store one message; its id. When this returns, the message survives a crash.

        A session in the trash is an unknown one: `UnknownSession`, which is an `sqlite3.IntegrityError`.

        With `lease_epoch` the row is refused (`LeaseLost`) once somebody else has taken the conversation over. `more`
        are further columns that a caller sets: see `store.columns`.
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
            NewMessage(session_id, role, content, columns, timestamp, lease_epoch)
        )

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], *, lease_epoch: int | None = None
    ) -> None:
        """Make the session hold exactly these; unchanged rows keep their id and time.

        An empty list does nothing: to empty a session there is `clear_messages`.
        """
        Messages(self._write_access(session_id)).replace(session_id, messages, lease_epoch)

    def clear_messages(self, session_id: str, *, lease_epoch: int | None = None) -> None:
        Messages(self._write_access(session_id)).clear(session_id, lease_epoch)

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        """Whether a message of the platform was stored before: for who works on a delivery a second time."""
        return Messages(self._read_access()).has_platform_id(session_id, platform_message_id)

    def get_messages(self, session_id: str, *, include_trashed: bool = False) -> list[Row]:
        """The session's own rows in order, all columns, content and tool calls decoded.

        Nothing of a session in the trash, unless the caller asks for that.
        """
        return Messages(self._read_access()).list_own(session_id, include_trashed=include_trashed)

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, *, include_trashed: bool = False
    ) -> list[Row]:
        """The live context in the shape a model takes; with ancestors, every message of the family once."""
        messages = Messages(self._read_access())
        return messages.read_conversation(session_id, include_ancestors, include_trashed=include_trashed)

    def message_count(self, session_id: str | None = None) -> int:
        return Messages(self._read_access()).count(session_id)

    # ---------------------------------------------------------------- titles and lineage

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """True iff there is such a session. A title in use elsewhere is a ValueError; an empty one clears."""
        titles = Titles(self._write_access(session_id))
        return self._ignore_unknown(lambda: titles.set(session_id, title), False)

    def set_auto_title_if_empty(self, session_id: str, title: str) -> str | None:
        """Title a session that has none; the title it got (` (2)` if taken), or None if it had one."""
        titles = Titles(self._write_access(session_id))
        return self._ignore_unknown(lambda: titles.set_if_empty(session_id, title), None)

    def claim_auto_title(self, session_id: str, seconds: float = 60.0, *, most_times: int = 3) -> bool:
        """Whether to ask a model for a title now; nobody else is told so for as many seconds, in any process."""
        return Titles(self._write_access(session_id)).claim(session_id, seconds, most_times)

    def get_session_title(self, session_id: str) -> str | None:
        return Titles(self._read_access()).get(session_id)

    def get_session_by_title(self, title: str) -> Row | None:
        return Titles(self._read_access()).find_session(title)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The newest session of the lineage that carries this name."""
        return Titles(self._read_access()).resolve(title)

    def get_compression_tip(self, session_id: str) -> str:
        return Lineage(self._read_access()).find_tip(session_id)

    def get_conversation_root(self, session_id: str) -> str | None:
        return Lineage(self._read_access()).find_root(session_id)

    def resolve_resume_session_id(self, session_id: str) -> str:
        return Lineage(self._read_access()).find_resume_target(session_id)

    # ---------------------------------------------------------------- lists, search, export

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
        """One row per conversation, with `preview` and `last_active`, newest start (or activity) first."""
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
        """Every session, children too, newest activity first."""
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
        """Messages that match: words, "phrases", AND, OR, NOT, prefix*. Any text is a valid query.

        If nothing matches, words of three or more characters that no message holds are looked for as parts of words,
        and `results.partial` says so. A question that nothing matches is answered with what is nearest, and
        `results.relaxed` says so; with `relax=True` any query is. `relax=False` allows neither.
        """
        from hermes.recall.message_search import MessageSearch

        return MessageSearch(self._read_access()).search(
            query,
            source_filter,
            exclude_sources,
            role_filter,
            limit,
            offset,
            sort=sort,
            after=after,
            before=before,
            relax=relax,
        )

    def export_session(self, session_id: str, *, redact: bool = False) -> Row | None:
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._read_access()).export(session_id, redact)

    def export_all(self, source: str | None = None, *, redact: bool = False) -> list[Row]:
        """Every session with its messages, complete when the call returns; `redact` masks secrets.

        All of them are in memory at once: `export_each` reads one at a time.
        """
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._read_access()).export_all(source, redact)

    def export_each(self, source: str | None = None, *, redact: bool = False) -> Iterator[Row]:
        """The sessions of `export_all`, each read from the store when its turn comes.

        A session created after the call is not included, and one deleted before its turn is left out.
        """
        from hermes.store.transfer.exporter import Transfer

        return Transfer(self._read_access()).export_each(source, redact)
