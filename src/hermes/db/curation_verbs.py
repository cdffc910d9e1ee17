"""Methods for managing conversations, for both handles: lists, pins, tags, trash and usage.

Managers are imported on first use, so that opening a store stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.db.handle import Handle, Row
from hermes.store.sessions.listing import ConversationFilter, ConversationPage, Listing

if TYPE_CHECKING:
    from hermes.store.reports.activity import Activity
    from hermes.store.reports.usage import Spending, UsageTotals


class CurationVerbs(Handle):
    # ---------------------------------------------------------------- lists and search

    def list_conversations(
        self,
        *,
        limit: int = 20,
        offset: int = 0,
        sources: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        workspace: Path | str | None = None,
        since: float | None = None,
        until: float | None = None,
        tag: str | None = None,
        pinned_only: bool = False,
        archived: bool | None = None,
        job_runs: bool | None = None,
        include_hidden: bool = False,
        order: str = "activity",
        pinned_first: bool = False,
    ) -> ConversationPage:
        """Return a page of conversations with their `tags`, the total number, and the number of hidden
        conversations by reason.

        `message_count` and `tool_call_count` include all segments of the conversation.

        By default, jobs, subagents, tool sessions and archived conversations are hidden. `include_hidden`
        includes them. With `archived`, only archived conversations are returned (True), or only others
        (False). With `job_runs`, only conversations that scheduled jobs began (True), or only others (False).
        `since` and `until` refer to the last activity. `order` is `activity`, `started` or `title`. With
        `pinned_first`, pinned conversations come before all others.
        """
        return Listing(self._read_access()).list_conversations(
            ConversationFilter(
                sources,
                exclude_sources,
                kinds,
                workspace,
                since,
                until,
                tag,
                pinned_only,
                archived,
                job_runs,
            ),
            limit=limit,
            offset=offset,
            include_hidden=include_hidden,
            order=order,
            pinned_first=pinned_first,
        )

    def get_conversation(self, session_id: str) -> dict[str, Any] | None:
        """Return the conversation that contains the session, as a row of `list_conversations`, or None if the
        session is unknown."""
        return Listing(self._read_access()).get_conversation(session_id)

    # ---------------------------------------------------------------- labels

    def pin_session(self, session_id: str, pinned: bool = True, *, segment: bool = False) -> bool:
        """Pin or unpin a conversation. A pinned conversation is never pruned. With `segment`, this applies to
        one session only. Return whether the session exists."""
        from hermes.store.sessions.labels import SessionLabels

        labels = SessionLabels(self._write_access(session_id))
        return self._ignore_unknown(lambda: labels.pin(session_id, pinned, segment), False)

    def set_session_archived(self, session_id: str, archived: bool, *, segment: bool = False) -> bool:
        """Move a conversation into the archive or, with `archived=False`, out of it. With `segment`, this
        applies to one session only. Return whether the session exists."""
        from hermes.store.sessions.labels import SessionLabels

        labels = SessionLabels(self._write_access(session_id))
        return self._ignore_unknown(lambda: labels.archive(session_id, archived, segment), False)

    def add_tags(self, session_id: str, *tags: str) -> list[str]:
        """Add tags to a conversation and return all its tags."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._write_access(session_id)).add_tags(session_id, *tags)

    def remove_tags(self, session_id: str, *tags: str) -> list[str]:
        """Remove tags from a conversation and return the tags that remain."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._write_access(session_id)).remove_tags(session_id, *tags)

    def tags_of(self, session_id: str) -> list[str]:
        """Return the tags of a conversation."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._read_access()).list_tags(session_id)

    def all_tags(self) -> list[tuple[str, int]]:
        """Return every tag with the number of conversations that have it, most used first."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._read_access()).count_tags()

    def set_session_workspace(self, session_id: str, cwd: Path | str, git_branch: str | None = None) -> bool:
        """Record the working directory of a session, which determines its project. Return whether the session
        exists."""
        from hermes.store.sessions.labels import SessionLabels

        labels = SessionLabels(self._write_access(session_id))
        return self._ignore_unknown(lambda: labels.set_workspace(session_id, cwd, git_branch), False)

    def set_session_model(self, session_id: str, model: str) -> bool:
        """Record the model with which a session continues. Return whether the session exists."""
        from hermes.store.sessions.sessions import Sessions

        sessions = Sessions(self._write_access(session_id))
        return self._ignore_unknown(lambda: sessions.set_model(session_id, model), False)

    def set_session_model_config(self, session_id: str, model_config: Mapping[str, Any]) -> bool:
        """Record the model configuration of a session. Return whether the session exists."""
        from hermes.store.sessions.sessions import Sessions

        sessions = Sessions(self._write_access(session_id))
        return self._ignore_unknown(lambda: sessions.set_model_config(session_id, model_config), False)

    @staticmethod
    def workspace_of(directory: Path | str) -> Path:
        """Return the Git root of a directory, or the directory itself if it is not in a Git repository."""
        from hermes.store.workspace import find_workspace

        return find_workspace(directory)

    # ---------------------------------------------------------------- trash

    def trash_session(self, session_id: str, *, segment: bool = False) -> list[str]:
        """Move a conversation and its subagents to the trash. With `segment`, move one session only. Return
        the ids of the moved sessions."""
        from hermes.store.retention.trash import Trash

        trash = Trash(self._write_access(session_id))
        return self._ignore_unknown(lambda: trash.trash_session(session_id, segment), [])

    def restore_session(self, session_id: str) -> list[str]:
        """Restore all sessions that were moved to the trash together with this session. Return their ids."""
        from hermes.store.retention.trash import Trash

        trash = Trash(self._write_access(session_id))
        return self._ignore_unknown(lambda: trash.restore(session_id), [])

    def list_trash(self, trash_days: float = 30) -> list[Row]:
        """Return the trash, newest first. Sessions that were trashed together form one row. `goes_at` is the
        time at which the row will be deleted, `trash_days` after it was trashed."""
        from hermes.store.retention.trash import Trash

        return Trash(self._read_access()).list_contents(trash_days)

    # ---------------------------------------------------------------- usage

    def record_usage(
        self,
        session_id: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        purpose: str = "main",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        at: float | None = None,
    ) -> int:
        """Store one model call and add it to the counters of the session. Return the id of the call.

        None stands for a value that the provider did not report.
        """
        from hermes.store.reports.usage import ModelCall, UsageRecords

        call = ModelCall(
            model=model,
            provider=provider,
            base_url=base_url,
            purpose=purpose,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            reasoning_tokens=reasoning_tokens,
            estimated_cost_usd=estimated_cost_usd,
            actual_cost_usd=actual_cost_usd,
            cost_status=cost_status,
            cost_source=cost_source,
            pricing_version=pricing_version,
        )
        return UsageRecords(self._write_access(session_id)).record(session_id, call, at)

    def record_auxiliary_usage(self, session_id: str, **call: Any) -> int:
        """Store a model call for a title, a summary or the like, and return the id of its row. The call is
        included in the counters of the session."""
        return self.record_usage(session_id, purpose="auxiliary", **call)

    def usage_of(self, session_id: str, family: bool = False) -> UsageTotals:
        """Return the usage and cost of a session. With `family`, return those of its whole conversation and
        its subagents."""
        from hermes.store.reports.usage import UsageRecords

        return UsageRecords(self._read_access()).read(session_id, family)

    def usage_of_owner(self, owner: str, since: float) -> Spending:
        """Return the usage of the model calls for a person or a room since a time, in all their
        conversations. `owner` is the value of the column `owner` of their sessions."""
        from hermes.store.reports.usage import UsageRecords

        return UsageRecords(self._read_access()).sum_of_owner(owner, since)

    def usage_by_model(self, since: float | None = None, until: float | None = None) -> UsageTotals:
        """Return the usage and cost of the model calls in all conversations, by model. Only calls from the time `since`
        (included) to the time `until` (not included) count."""
        from hermes.store.reports.usage import UsageRecords

        return UsageRecords(self._read_access()).sum_by_model(since, until)

    def activity(
        self, since: float, sources: Sequence[str] | None = None
    ) -> AbstractContextManager[Activity]:
        """Open a snapshot of the activity in the sessions that started at the time `since` or later, for a report. It
        is a context manager: `with db.activity(...) as activity`."""
        from hermes.store.reports.activity import Activities

        return Activities(self._read_access()).open_since(since, sources)
