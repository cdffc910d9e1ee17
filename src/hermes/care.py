"""What people do with their conversations: look through them, keep them, throw them away, and see what they cost.

`SessionDB` inherits it. Each verb fetches its manager when it is called, so that opening a store stays light.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.store.listing import ConversationPage, Listing, Wanted

if TYPE_CHECKING:
    from hermes.store.engine import Engine
    from hermes.store.keeping import Keeping
    from hermes.store.thinning import Thinned, Thinning
    from hermes.store.trash import Trash
    from hermes.store.usage import UsageRecords, UsageTotals

Row = dict[str, Any]


class Care:
    _engine: Engine

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
        return Listing(self._engine).conversations(
            Wanted(sources, exclude_sources, kinds, workspace, since, until, tag, pinned_only, archived),
            limit=limit,
            offset=offset,
            include_hidden=include_hidden,
            order=order,
            pinned_first=pinned_first,
        )

    def pin_session(self, session_id: str, pinned: bool = True, *, segment: bool = False) -> bool:
        """Pin a conversation (or one session of it) so that it is never pruned; True iff there is one."""
        return self._keeping.pin(session_id, pinned, segment)

    def set_session_archived(self, session_id: str, archived: bool, *, segment: bool = False) -> bool:
        """Put a conversation (or one session of it) away, or back; True iff there is one."""
        return self._keeping.archive(session_id, archived, segment)

    def add_tags(self, session_id: str, *tags: str) -> list[str]:
        """Tag a conversation; all its tags."""
        return self._keeping.add_tags(session_id, *tags)

    def remove_tags(self, session_id: str, *tags: str) -> list[str]:
        """Take tags from a conversation; those it still has."""
        return self._keeping.remove_tags(session_id, *tags)

    def tags_of(self, session_id: str) -> list[str]:
        return self._keeping.tags_of(session_id)

    def all_tags(self) -> list[tuple[str, int]]:
        """Every tag with the number of its conversations, the most used first."""
        return self._keeping.all_tags()

    def set_session_workspace(self, session_id: str, cwd: Path | str, git_branch: str | None = None) -> bool:
        """Record in which directory a session is held, and so in which project; True iff there is one."""
        return self._keeping.set_workspace(session_id, cwd, git_branch)

    @staticmethod
    def workspace_of(directory: Path | str) -> Path:
        """The git root of a directory, else the directory itself."""
        from hermes.store.workspace import workspace_of

        return workspace_of(directory)

    def trash_session(self, session_id: str, *, segment: bool = False) -> list[str]:
        """Throw a conversation and its subagents (or one session) into the trash; the ids that went."""
        return self._trash.put(session_id, segment)

    def restore_session(self, session_id: str) -> list[str]:
        """Bring back what was thrown away together with this session; the ids that came."""
        return self._trash.restore(session_id)

    def list_trash(self, trash_days: float = 30) -> list[Row]:
        """One row for what was thrown away together, newest first; `goes_at` says when it will be deleted."""
        return self._trash.contents(trash_days)

    def empty_trash(
        self, older_than_days: float = 30, purge: bool = False, sessions_dir: Path | None = None
    ) -> int:
        """Delete what has lain in the trash for so long, all of it with 0; how many sessions went."""
        from hermes.store.retention import Retention

        return self._trash.empty(Retention(self._engine), older_than_days, purge, sessions_dir)

    def thin(self, older_than_days: float = 30, larger_than: int = 16_384, dry_run: bool = False) -> Thinned:
        """Cut large tool output of long unused conversations to its beginning and end."""
        return self._thinning.thin(older_than_days, larger_than, dry_run)

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
        from hermes.store.usage import ModelCall

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
        return self._usage.record(session_id, call, at)

    def record_auxiliary_usage(self, session_id: str, **call: Any) -> int:
        """`record_usage` for titles, summaries and the like; the session's counters hold these calls, too."""
        return self.record_usage(session_id, purpose="auxiliary", **call)

    def usage_of(self, session_id: str, family: bool = False) -> UsageTotals:
        """What a session used and cost; with `family`, its conversation and the subagents that worked for it."""
        return self._usage.of(session_id, family)

    def usage_by_model(self, since: float | None = None, until: float | None = None) -> UsageTotals:
        """What all conversations used and cost, by model, from `since` on and before `until`."""
        return self._usage.by_model(since, until)

    # These managers are made when they are asked for: most commands need none of them.

    @property
    def _keeping(self) -> Keeping:
        from hermes.store.keeping import Keeping

        return Keeping(self._engine)

    @property
    def _trash(self) -> Trash:
        from hermes.store.trash import Trash

        return Trash(self._engine)

    @property
    def _thinning(self) -> Thinning:
        from hermes.store.thinning import Thinning

        return Thinning(self._engine)

    @property
    def _usage(self) -> UsageRecords:
        from hermes.store.usage import UsageRecords

        return UsageRecords(self._engine)
