"""What callers of a search hand in, checked once: which messages it may find, and in what order."""

from __future__ import annotations

from collections.abc import Sequence

from hermes import errors
from hermes.store.arguments import moment, names
from hermes.store.sessions import source_name
from hermes.store.values import MessageFilter, Order


def order_of(sort: object) -> Order:
    if sort == "relevance":
        return "relevance"
    if sort == "newest":
        return "newest"
    if sort == "oldest":
        return "oldest"
    raise errors.raised(errors.InvalidArgument, f"sort must be relevance, newest or oldest, got {sort!r:.40}")


def filter_of(
    source_filter: Sequence[str] | None,
    exclude_sources: Sequence[str] | None,
    role_filter: Sequence[str] | None,
    after: float | None,
    before: float | None,
) -> MessageFilter:
    return MessageFilter(
        None if source_filter is None else _sources("source_filter", source_filter),
        _sources("exclude_sources", exclude_sources or ()),
        names("role_filter", role_filter or ()),
        None if after is None else moment("after", after),
        None if before is None else moment("before", before),
    )


def _sources(parameter: str, values: object) -> tuple[str, ...]:
    return tuple(source_name(name) for name in names(parameter, values))
