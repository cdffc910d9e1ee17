"""The fields of a query, `source:cli` and its kind, put together into a filter as they are read."""

from __future__ import annotations

from typing import NamedTuple, get_args

from hermes.store.sessions.sessions import check_source
from hermes.store.values import Kind, MessageFilter

__all__ = ["DATES", "FIELDS", "FLAGS", "Field", "Fields"]

ROLES = ("user", "assistant", "system", "tool")
KINDS: tuple[str, ...] = get_args(Kind)
FLAGS = ("has:error", "has:tool", "is:pinned")
CHOICES = ("source", "role", "kind")
TEXTS = ("tool", "title", "model", "workspace")
DATES = ("before", "after", "on")
FIELDS = frozenset((*CHOICES, *TEXTS, *DATES, "has", "is"))


class Field(NamedTuple):
    """A field that was understood, as it was typed."""

    name: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = f'"{self.value}"' if " " in self.value else self.value
        return f"{'NOT ' if self.negated else ''}{self.name}:{value}"


class Fields:
    """What the fields of a query say, put together as they are read."""

    def __init__(self, now: float) -> None:
        self.understood: list[Field] = []
        self.ignored: list[str] = []
        self._now = now
        self._chosen: dict[str, dict[str, None]] = {name: {} for name in CHOICES}
        self._barred: dict[str, dict[str, None]] = {name: {} for name in CHOICES}
        self._texts: dict[str, str] = {}
        self._flags: set[str] = set()
        self._after: float | None = None
        self._before: float | None = None

    def filter(self) -> MessageFilter:
        roles = self._get_remaining("role", ROLES)
        nobody = roles is not None and not roles
        return MessageFilter(
            sources=() if nobody else tuple(self._chosen["source"]) or None,
            exclude_sources=tuple(self._barred["source"]),
            roles=roles or (),
            kinds=self._get_remaining("kind", KINDS),
            after=self._after,
            before=self._before,
            tool=self._texts.get("tool"),
            title=self._texts.get("title"),
            model=self._texts.get("model"),
            workspace=self._texts.get("workspace"),
            errors_only="has:error" in self._flags,
            calls_only="has:tool" in self._flags,
            pinned_only="is:pinned" in self._flags,
        )

    def _get_remaining(self, name: str, every: tuple[str, ...]) -> tuple[str, ...] | None:
        chosen, barred = self._chosen[name], self._barred[name]
        if not barred:
            return tuple(chosen) or None
        return tuple(value for value in chosen or every if value not in barred)

    def take(self, name: str, value: str, typed: str, negated: bool) -> bool:
        """Whether it is a field with a meaning; what only looks like one is noted."""
        if name in FIELDS and value.strip() and self._apply(name, value.strip(), negated):
            self.understood.append(Field(name, value, negated))
            return True
        if name in FIELDS or not value.startswith(("/", ":")):
            self.ignored.append(typed)
        return False

    def take_date(self, name: str, value: str, negated: bool) -> bool:
        """Whether it is a date; what is none may be one with fewer words."""
        if negated or not self._is_date(name, value):
            return False
        self.understood.append(Field(name, value))
        return True

    def _is_date(self, name: str, value: str) -> bool:
        from hermes.recall.query.dates import read_date

        span = read_date(value, self._now)
        if span is None:
            return False
        if name != "before":
            self._after = span.start if self._after is None else max(self._after, span.start)
        if name != "after":
            end = span.start if name == "before" else span.end
            self._before = end if self._before is None else min(self._before, end)
        return True

    def _apply(self, name: str, value: str, negated: bool) -> bool:
        if name in CHOICES:
            return self._choose(name, value, negated)
        if negated:
            return False
        flag = f"{name}:{value.lower()}"
        if flag in FLAGS:
            self._flags.add(flag)
            return True
        if name in DATES:
            return self._is_date(name, value)
        if name in TEXTS:
            value = value.rstrip("/") or value if name == "workspace" else value
            return self._texts.setdefault(name, value) == value
        return False

    def _choose(self, name: str, value: str, negated: bool) -> bool:
        lower = value.lower()
        if name == "source":
            meant = dict.fromkeys((check_source(value), check_source(lower)))
        elif lower in (ROLES if name == "role" else KINDS):
            meant = {lower: None}
        else:
            return False
        (self._barred if negated else self._chosen)[name].update(meant)
        return True
