"""`hermes sessions tree`: a conversation's family, drawn."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import DONE, Refused, Words, plain_text, takes_json, takes_store
from hermes.cli.io.columns import columns_taken
from hermes.cli.io.output import page, say_json, styled, terminal_width
from hermes.cli.opened_store import one_session, opened
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.store.sessions.lineage import Relative

RELATIONS = {"compression": "continued", "branch": "branch", "reset": "after reset", "delegate": "subagent"}
JSON_FIELDS = (
    "id", "relation", "title", "source", "kind", "started_at", "ended_at", "end_reason", "last_active", "message_count",
)  # fmt: skip
SPACE, BETWEEN = "  ", " · "
SHORTEST_TITLE = 14


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, tree)
    parser.add_argument(
        "session", nargs="+", type=plain_text, metavar="ID|TITLE", help="any session of the family"
    )
    takes_json(parser)


def tree(arguments: argparse.Namespace) -> int:
    with opened(arguments) as db:
        session_id = one_session(db, arguments.session)
        family = db.family(session_id)
    if family is None:
        raise Refused(f"Session '{session_id}' not found.")
    if arguments.json:
        say_json(_as_json(family))
    else:
        page(_drawn(family, session_id))
    return DONE


def _drawn(first: Relative, named: str) -> Iterator[str]:
    """A line per session. A stack instead of recursion: a chain of continuations is as long as its life."""
    now, width = clock.now(), terminal_width()
    stack: list[tuple[Relative, str, str]] = [(first, "", "")]
    while stack:
        one, edge, below = stack.pop()
        yield edge + _line(one, now, one.id == named, None if width is None else width - len(edge))
        last = len(one.children) - 1
        stack += [
            (
                child,
                f"{below}{'└─ ' if number == last else '├─ '}",
                f"{below}{'   ' if number == last else '│  '}",
            )
            for number, child in reversed(list(enumerate(one.children)))
        ]


def _line(one: Relative, now: float, is_named: bool, room: int | None) -> str:
    """What it is, its title, its id, and as much of the rest as there is room for."""
    relation = RELATIONS.get(one.relation or "", "") if one.parent_session_id else ""
    before = f"{relation}: " if relation else ""
    title = make_printable(one.title or "—", width_limit=60)
    facts = [make_printable(one.id), *([make_printable(one.source)] if one.source != "cli" else [])]
    facts += [
        format_count(one.message_count or 0, "message"),
        clock.format_relative(one.last_active or one.started_at, now),
    ]
    if room is not None:
        while len(facts) > 1 and columns_taken(before + title + SPACE + BETWEEN.join(facts)) > room:
            facts.pop(-2 if len(facts) > 2 else -1)  # the id and the time are the last to go
        left = room - columns_taken(before + SPACE + BETWEEN.join(facts))
        title = make_printable(title, width_limit=max(SHORTEST_TITLE, left))
    name = styled(title, *(["bold", "underline"] if is_named else ["bold"]))
    return f"{styled(before, 'cyan')}{name}{SPACE}{styled(BETWEEN.join(facts), 'dim')}"


def _as_json(first: Relative) -> dict[str, Any]:
    made = _fields(first)
    stack = [(first, made)]
    while stack:
        one, into = stack.pop()
        for child in one.children:
            told = _fields(child)
            into["children"].append(told)
            stack.append((child, told))
    return made


def _fields(one: Relative) -> dict[str, Any]:
    return {**{name: getattr(one, name) for name in JSON_FIELDS}, "children": []}
