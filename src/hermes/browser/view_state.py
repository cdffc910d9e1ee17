"""What the browser is asked to show: the query, the filters and the order. Knows nothing of widgets."""

from __future__ import annotations

from typing import Any, NamedTuple

from hermes.browser.rows import Conversation
from hermes.store.sessions.listing import HIDDEN_KINDS, KINDS

ORDERS = {"activity": "by last activity", "started": "by start", "title": "by title"}
FOUND_ORDERS = {"relevance": "best first", **ORDERS}
KIND_NAMES = {"chat": "chats", "job": "jobs", "child": "subagents", "tool": "tool sessions"}
REASONS = {"child": "subagent"}
"""What people call the reasons for which a conversation is hidden; the others are called what they are."""


class View(NamedTuple):
    query: str = ""
    sources: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    """None is what a person wants to see as a rule: chats; of a source that is named, all but its subagents."""
    archived: bool = False
    """Whether archived conversations are shown among the others."""
    order: str = "activity"
    found_order: str = "relevance"
    limit: int | None = None

    @property
    def is_search(self) -> bool:
        return bool(self.query.strip())

    @property
    def words(self) -> tuple[str, ...]:
        """What of the query may be marked where it is seen."""
        return tuple(self.query.replace('"', " ").replace("*", " ").split())

    @property
    def visible_kinds(self) -> tuple[str, ...]:
        if self.kinds is not None:
            return self.kinds
        hidden = HIDDEN_KINDS if self.sources is None else ("child",)
        return tuple(kind for kind in KINDS if kind not in hidden)

    @property
    def is_filtered(self) -> bool:
        return self.sources is not None or self.kinds is not None or self.archived

    def list_arguments(self) -> dict[str, Any]:
        """The same as arguments of `list_conversations`. Naming kinds there shows them; the archive needs both."""
        kinds = self.visible_kinds if self.archived else self.kinds
        return {
            "sources": self.sources,
            "kinds": kinds,
            "include_hidden": self.archived,
            "order": self.order,
            "pinned_first": True,
        }

    def is_showing(self, conversation: Conversation) -> bool:
        """Whether what a search found passes the filters."""
        return (
            (self.sources is None or conversation.source in self.sources)
            and conversation.kind in self.visible_kinds
            and (self.archived or not conversation.archived)
        )

    def with_next_order(self) -> View:
        if self.is_search:
            return self._replace(found_order=_get_next(self.found_order, list(FOUND_ORDERS)))
        return self._replace(order=_get_next(self.order, list(ORDERS)))

    def describe_order(self) -> str:
        return FOUND_ORDERS[self.found_order if self.is_search else self.order]

    def describe_filters(self) -> str:
        filters = [", ".join(self.sources)] if self.sources else []
        if self.kinds is not None:
            filters.append("every kind" if set(self.kinds) == set(KINDS) else _describe_kinds(self.kinds))
        if self.archived:
            filters.append("with archive")
        return " · ".join(filters)


def show_everything(view: View) -> View:
    return view._replace(kinds=KINDS, archived=True)


def describe_hidden(hidden: dict[str, int]) -> str:
    """`300 cron, 12 archived hidden`; empty if nothing is."""
    most_first = sorted(hidden.items(), key=lambda item: (-item[1], item[0]))
    counts = ", ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in most_first)
    return f"{counts} hidden" if counts else ""


def _describe_kinds(kinds: tuple[str, ...]) -> str:
    return ", ".join(KIND_NAMES[kind] for kind in kinds) or "no kind"


def _get_next(value: str, values: list[str]) -> str:
    return values[(values.index(value) + 1) % len(values)]
