"""Checks the arguments of searches: message filters and sort order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hermes import errors
from hermes.session_kinds import SOURCE_ALIASES
from hermes.store.arguments import check_integer, check_names, check_time
from hermes.store.sessions.listing import KINDS
from hermes.store.sessions.sessions import check_source
from hermes.store.values import MessageFilter, Order, SearchRequest


def parse_order(sort: object) -> Order:
    if sort == "relevance":
        return "relevance"
    if sort == "newest":
        return "newest"
    if sort == "oldest":
        return "oldest"
    raise errors.make_error(
        errors.InvalidArgument, f"sort must be relevance, newest or oldest, got {sort!r:.40}"
    )


def make_filter(
    source_filter: Sequence[str] | None,
    exclude_sources: Sequence[str] | None,
    role_filter: Sequence[str] | None,
    after: float | None,
    before: float | None,
) -> MessageFilter:
    return MessageFilter(
        None if source_filter is None else _expand_sources("source_filter", source_filter),
        _expand_sources("exclude_sources", exclude_sources or ()),
        check_names("role_filter", role_filter or ()),
        None if after is None else check_time("after", after),
        None if before is None else check_time("before", before),
    )


def make_request(
    source_filter: Sequence[str] | None = None,
    exclude_sources: Sequence[str] | None = None,
    role_filter: Sequence[str] | None = None,
    after: float | None = None,
    before: float | None = None,
    *,
    limit: int,
    offset: int = 0,
    sort: str = "relevance",
) -> SearchRequest:
    """Check the arguments of a public search method and return them as one request."""
    limit, offset = check_integer("limit", limit), max(0, check_integer("offset", offset))
    order = parse_order(sort)
    message_filter = make_filter(source_filter, exclude_sources, role_filter, after, before)
    return SearchRequest(message_filter, limit, offset, order)


def exclude_hidden(message_filter: MessageFilter) -> MessageFilter:
    """Return the filter, changed so that it excludes hidden conversations.

    Archived conversations are hidden unless the filter sets `archived`. Jobs and tool sessions are hidden
    unless the filter names a source or a kind. Subagent sessions are hidden unless it names a kind. In the
    trash, only subagent sessions are hidden.
    """
    is_named = message_filter.sources is not None or message_filter.trashed
    hidden = ("child",) if is_named else ("child", "job", "tool")
    if message_filter.kinds is None:
        message_filter = message_filter._replace(kinds=tuple(kind for kind in KINDS if kind not in hidden))
    if message_filter.archived is None and not message_filter.trashed:
        message_filter = message_filter._replace(archived=False)
    return message_filter


def intersect_filters(first: MessageFilter, second: MessageFilter) -> MessageFilter:
    """Return a filter that allows only the messages that both filters allow. There is one exception: if both
    filters name a tool, a title, a model or a workspace, only that of `second` applies."""
    roles = _intersect(first.roles or None, second.roles or None)
    nobody = (roles is not None and not roles) or any(
        None not in flags and flags[0] != flags[1]
        for flags in ((first.pinned, second.pinned), (first.archived, second.archived))
    )
    return MessageFilter(
        () if nobody else _intersect(first.sources, second.sources),
        (*first.exclude_sources, *second.exclude_sources),
        roles or (),
        _pick(max, first.after, second.after),
        _pick(min, first.before, second.before),
        second.tool or first.tool,
        second.title or first.title,
        second.model or first.model,
        second.workspace or first.workspace,
        _intersect(first.kinds, second.kinds),
        first.errors_only or second.errors_only,
        first.calls_only or second.calls_only,
        second.pinned if first.pinned is None else first.pinned,
        second.archived if first.archived is None else first.archived,
        first.trashed or second.trashed,
        tuple(dict.fromkeys((*first.tags, *second.tags))),
        (*first.exclude_tags, *second.exclude_tags),
        (*first.but_conversations, *second.but_conversations),
    )


def _intersect(first: tuple[str, ...] | None, second: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if first is None or second is None:
        return second if first is None else first
    return tuple(name for name in first if name in second)


def _pick(choose: Callable[[float, float], float], first: float | None, second: float | None) -> float | None:
    return (
        choose(first, second)
        if first is not None and second is not None
        else first
        if second is None
        else second
    )


def _expand_sources(parameter: str, values: object) -> tuple[str, ...]:
    """Return the sources together with their older spellings, so that sessions written by older programs are
    found as well."""
    found = tuple(check_source(name) for name in check_names(parameter, values))
    return (*found, *(spelled for spelled, name in SOURCE_ALIASES.items() if name in found))
