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
    def shown_kinds(self) -> tuple[str, ...]:
        if self.kinds is not None:
            return self.kinds
        hidden = HIDDEN_KINDS if self.sources is None else ("child",)
        return tuple(kind for kind in KINDS if kind not in hidden)

    @property
    def is_filtered(self) -> bool:
        return self.sources is not None or self.kinds is not None or self.archived

    def asked(self) -> dict[str, Any]:
        """The same as arguments of `list_conversations`. Naming kinds there shows them; the archive needs both."""
        kinds = self.shown_kinds if self.archived else self.kinds
        return {
            "sources": self.sources,
            "kinds": kinds,
            "include_hidden": self.archived,
            "order": self.order,
            "pinned_first": True,
        }

    def shows(self, one: Conversation) -> bool:
        """Whether what a search found passes the filters."""
        return (
            (self.sources is None or one.source in self.sources)
            and one.kind in self.shown_kinds
            and (self.archived or not one.archived)
        )

    def sorted_next(self) -> View:
        if self.is_search:
            return self._replace(found_order=_after(self.found_order, list(FOUND_ORDERS)))
        return self._replace(order=_after(self.order, list(ORDERS)))

    def order_told(self) -> str:
        return FOUND_ORDERS[self.found_order if self.is_search else self.order]

    def filters_told(self) -> str:
        told = [", ".join(self.sources)] if self.sources else []
        if self.kinds is not None:
            told.append("every kind" if set(self.kinds) == set(KINDS) else _kinds_told(self.kinds))
        if self.archived:
            told.append("with archive")
        return " · ".join(told)


def with_everything(view: View) -> View:
    return view._replace(kinds=KINDS, archived=True)


def hidden_told(hidden: dict[str, int]) -> str:
    """`300 cron, 12 archived hidden`; empty if nothing is."""
    most_first = sorted(hidden.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in most_first)
    return f"{told} hidden" if told else ""


def _kinds_told(kinds: tuple[str, ...]) -> str:
    return ", ".join(KIND_NAMES[kind] for kind in kinds) or "no kind"


def _after(value: str, values: list[str]) -> str:
    return values[(values.index(value) + 1) % len(values)]
