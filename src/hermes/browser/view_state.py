"""The view of the browser: the query, the filters and the order. This module does not depend on widgets."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.browser.rows import Conversation, Rows
from hermes.store.sessions.listing import HIDDEN_KINDS, KINDS
from hermes.store.workspace import WorkspaceName

ORDERS = {"activity": "by last activity", "started": "by start", "title": "by title"}
FOUND_ORDERS = {"relevance": "best first", **ORDERS}
KIND_NAMES = {"chat": "chats", "job": "jobs", "child": "subagents", "tool": "tool sessions"}
REASONS = {"child": "subagent"}
"""Display names of the reasons why conversations are hidden. Other reasons are shown unchanged."""


class View(NamedTuple):
    query: str = ""
    sources: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    """The kinds of conversations that are shown. None means the default: only chats or, if a source is
    chosen, all kinds of that source except subagents."""
    archived: bool = False
    """Whether archived conversations are shown among the others."""
    order: str = "activity"
    found_order: str = "relevance"
    limit: int | None = None
    workspace: WorkspaceName | None = None
    """The project whose conversations are shown. None means all projects."""

    @property
    def is_search(self) -> bool:
        return bool(self.query.strip())

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the query, for highlighting."""
        return tuple(self.query.replace('"', " ").replace("*", " ").split())

    @property
    def visible_kinds(self) -> tuple[str, ...]:
        if self.kinds is not None:
            return self.kinds
        hidden = HIDDEN_KINDS if self.sources is None else ("child",)
        return tuple(kind for kind in KINDS if kind not in hidden)

    @property
    def groups_jobs(self) -> bool:
        """Whether conversations of scheduled jobs are shown, grouped by job. Search results are not grouped."""
        is_source = self.sources is None or "cron" in self.sources
        return is_source and "job" in self.visible_kinds and not self.is_search

    def list_arguments(self) -> dict[str, Any]:
        """Return the view as arguments of `list_conversations`, without the conversations of scheduled jobs.
        If the archive is shown, both explicit kinds and `include_hidden` are passed, because that method needs
        both."""
        kinds = self.visible_kinds if self.archived else self.kinds
        return {
            "sources": self.sources,
            "kinds": kinds,
            "include_hidden": self.archived,
            "workspace": self.workspace,
            "job_runs": False if self.groups_jobs else None,
            "order": self.order,
            "pinned_first": True,
        }

    def is_showing(self, conversation: Conversation) -> bool:
        """Return whether the filters of this view allow `conversation`, which a search found."""
        return (
            (self.sources is None or conversation.source in self.sources)
            and conversation.kind in self.visible_kinds
            and (self.archived or not conversation.archived)
            and (self.workspace is None or self.workspace.is_of(conversation.workspace))
        )

    def with_next_order(self) -> View:
        if self.is_search:
            return self._replace(found_order=_get_next(self.found_order, list(FOUND_ORDERS)))
        return self._replace(order=_get_next(self.order, list(ORDERS)))

    def describe_order(self) -> str:
        return FOUND_ORDERS[self.found_order if self.is_search else self.order]

    def describe_filters(self) -> str:
        filters = [f"only in {self.workspace.label}"] if self.workspace else []
        if self.sources:
            filters.append(", ".join(self.sources))
        if self.kinds is not None:
            filters.append("every kind" if set(self.kinds) == set(KINDS) else _describe_kinds(self.kinds))
        if self.archived:
            filters.append("with archive")
        return " · ".join(filters)


def show_everything(view: View) -> View:
    return view._replace(kinds=KINDS, archived=True)


def describe_hidden(hidden: dict[str, int]) -> str:
    """Describe hidden conversations, such as `300 cron, 12 archived hidden`. Return an empty string if none
    are hidden."""
    most_first = sorted(hidden.items(), key=lambda item: (-item[1], item[0]))
    counts = ", ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in most_first)
    return f"{counts} hidden" if counts else ""


def describe_empty(view: View, rows: Rows) -> list[str]:
    """Return the lines that are shown in place of an empty list: why it is empty, and what the user can do."""
    filters, hidden = view.describe_filters(), describe_hidden(rows.hidden)
    if not (view.is_search or filters or hidden):
        return [
            "No conversations yet.",
            "",
            "Start one:          hermes chat",
            "Import an export:   hermes sessions import FILE",
            "Look at samples:    hermes demo",
        ]
    place = f"in {view.workspace.label}" if view.workspace else "here"
    lines = [
        f"Nothing found for “{view.query.strip()}”." if view.is_search else f"No conversations {place}.",
        "",
    ]
    if view.is_search:
        lines.append("Esc clears the query.")
    if view.workspace:
        lines.append("^N shows the other projects again.")
    if filters and filters != view._replace(sources=None, kinds=None, archived=False).describe_filters():
        lines.append(f"^F changes the filters: {filters}.")
    if hidden:
        lines.append(f"{hidden}; ^F shows them.")
    return lines


def _describe_kinds(kinds: tuple[str, ...]) -> str:
    return ", ".join(KIND_NAMES[kind] for kind in kinds) or "no kind"


def _get_next(value: str, values: list[str]) -> str:
    return values[(values.index(value) + 1) % len(values)]
