"""What people do with their conversations: look through them, keep them, throw them away, and see what they cost.

Both handles have it. Each verb fetches its manager when it is called, so that opening a store stays light.
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
    from hermes.store.reports.usage import UsageTotals


class CurationVerbs(Handle):
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
        include_hidden: bool = False,
        order: str = "activity",
        pinned_first: bool = False,
    ) -> ConversationPage:
        """The list for people: a page of rich rows with `tags`, how many there are, and how many are hidden and why.

        `since` and `until` are about the last activity. `order` is `activity`, `started` or `title`.
        """
        return Listing(self._read_access()).list_conversations(
            ConversationFilter(
                sources, exclude_sources, kinds, workspace, since, until, tag, pinned_only, archived
            ),
            limit=limit,
            offset=offset,
            include_hidden=include_hidden,
            order=order,
            pinned_first=pinned_first,
        )

    def pin_session(self, session_id: str, pinned: bool = True, *, segment: bool = False) -> bool:
        """Pin a conversation (or one session of it) so that it is never pruned; True iff there is one."""
        from hermes.store.sessions.labels import SessionLabels

        labels = SessionLabels(self._write_access(session_id))
        return self._ignore_unknown(lambda: labels.pin(session_id, pinned, segment), False)

    def set_session_archived(self, session_id: str, archived: bool, *, segment: bool = False) -> bool:
        """Put a conversation (or one session of it) away, or back; True iff there is one."""
        from hermes.store.sessions.labels import SessionLabels

        labels = SessionLabels(self._write_access(session_id))
        return self._ignore_unknown(lambda: labels.archive(session_id, archived, segment), False)

    def add_tags(self, session_id: str, *tags: str) -> list[str]:
        """Tag a conversation; all its tags."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._write_access(session_id)).add_tags(session_id, *tags)

    def remove_tags(self, session_id: str, *tags: str) -> list[str]:
        """Take tags from a conversation; those it still has."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._write_access(session_id)).remove_tags(session_id, *tags)

    def tags_of(self, session_id: str) -> list[str]:
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._read_access()).list_tags(session_id)

    def all_tags(self) -> list[tuple[str, int]]:
        """Every tag with the number of its conversations, the most used first."""
        from hermes.store.sessions.labels import SessionLabels

        return SessionLabels(self._read_access()).count_tags()

    def set_session_workspace(self, session_id: str, cwd: Path | str, git_branch: str | None = None) -> bool:
        """Record in which directory a session is held, and so in which project; True iff there is one."""
        from hermes.store.sessions.labels import SessionLabels

        labels = SessionLabels(self._write_access(session_id))
        return self._ignore_unknown(lambda: labels.set_workspace(session_id, cwd, git_branch), False)

    def set_session_model(self, session_id: str, model: str) -> bool:
        """Record with which model a session goes on; True iff there is one."""
        from hermes.store.sessions.sessions import Sessions

        sessions = Sessions(self._write_access(session_id))
        return self._ignore_unknown(lambda: sessions.set_model(session_id, model), False)

    def set_session_model_config(self, session_id: str, model_config: Mapping[str, Any]) -> bool:
        """Record what the model of a session is configured with; True iff there is one."""
        from hermes.store.sessions.sessions import Sessions

        sessions = Sessions(self._write_access(session_id))
        return self._ignore_unknown(lambda: sessions.set_model_config(session_id, model_config), False)

    @staticmethod
    def workspace_of(directory: Path | str) -> Path:
        """The git root of a directory, else the directory itself."""
        from hermes.store.workspace import find_workspace

        return find_workspace(directory)

    def trash_session(self, session_id: str, *, segment: bool = False) -> list[str]:
        """Throw a conversation and its subagents (or one session) into the trash; the ids that went."""
        from hermes.store.retention.trash import Trash

        trash = Trash(self._write_access(session_id))
        return self._ignore_unknown(lambda: trash.trash_session(session_id, segment), [])

    def restore_session(self, session_id: str) -> list[str]:
        """Bring back what was thrown away together with this session; the ids that came."""
        from hermes.store.retention.trash import Trash

        trash = Trash(self._write_access(session_id))
        return self._ignore_unknown(lambda: trash.restore(session_id), [])

    def list_trash(self, trash_days: float = 30) -> list[Row]:
        """One row for what was thrown away together, newest first; `goes_at` says when it will be deleted."""
        from hermes.store.retention.trash import Trash

        return Trash(self._read_access()).list_contents(trash_days)

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
        """Store one model call and add it to the session's counters; its id. None is what the provider did not say."""
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
        """`record_usage` for titles, summaries and the like; the session's counters hold these calls, too."""
        return self.record_usage(session_id, purpose="auxiliary", **call)

    def usage_of(self, session_id: str, family: bool = False) -> UsageTotals:
        """What a session used and cost; with `family`, its conversation and the subagents that worked for it."""
        from hermes.store.reports.usage import UsageRecords

        return UsageRecords(self._read_access()).read(session_id, family)

    def usage_by_model(self, since: float | None = None, until: float | None = None) -> UsageTotals:
        """What all conversations used and cost, by model, from `since` on and before `until`."""
        from hermes.store.reports.usage import UsageRecords

        return UsageRecords(self._read_access()).sum_by_model(since, until)

    def activity(
        self, since: float, sources: Sequence[str] | None = None
    ) -> AbstractContextManager[Activity]:
        """What was done in sessions that began at this time or later: `with db.activity(...) as it`, one snapshot."""
        from hermes.store.reports.activity import Activities

        return Activities(self._read_access()).open_since(since, sources)
