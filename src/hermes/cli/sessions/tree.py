"""`hermes sessions tree`: draw the family of a conversation as a tree.

The family consists of all sessions that are connected with the conversation by continuations, branches,
resets and subagents.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.cli.command import Words, add_json_option, add_store_option, parse_text
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.json_fields import select_fields
from hermes.cli.io.output import apply_style, get_terminal_width, print_json, print_paged
from hermes.cli.io.text_columns import measure_text
from hermes.cli.store_access import find_session, open_store
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
    add_store_option(parser, show_tree)
    parser.add_argument(
        "session", nargs="+", type=parse_text, metavar="ID|TITLE", help="any session of the family"
    )
    add_json_option(parser, JSON_FIELDS)


def show_tree(arguments: argparse.Namespace) -> int:
    with open_store(arguments) as db:
        session_id = find_session(db, arguments.session)
        family = db.family(session_id)
    if family is None:
        raise Refused(f"Session '{session_id}' not found.")
    if arguments.json:
        print_json(_make_json(family, arguments.json))
    else:
        print_paged(_draw(family, session_id))
    return DONE


def _draw(first: Relative, named: str) -> Iterator[str]:
    """Yield a line of the tree for each session. A chain of continuations can be very long, so the function
    uses a stack instead of recursion."""
    now, width = clock.now(), get_terminal_width()
    stack: list[tuple[Relative, str, str]] = [(first, "", "")]
    while stack:
        session, edge, below = stack.pop()
        yield edge + _format_session(
            session, now, session.id == named, None if width is None else width - len(edge)
        )
        last = len(session.children) - 1
        stack += [
            (
                child,
                f"{below}{'└─ ' if number == last else '├─ '}",
                f"{below}{'   ' if number == last else '│  '}",
            )
            for number, child in reversed(list(enumerate(session.children)))
        ]


def _format_session(session: Relative, now: float, is_named: bool, room: int | None) -> str:
    """Format a session of the family in one line: its relation to its parent, its title and its id, and as many
    other facts as fit into `room` columns."""
    relation = RELATIONS.get(session.relation or "", "") if session.parent_session_id else ""
    before = f"{relation}: " if relation else ""
    task = session.preview if session.kind == "child" else None
    title = make_printable(session.title or task or "—", width_limit=60)
    facts = [
        make_printable(session.id),
        *([make_printable(session.source)] if session.source != "cli" else []),
    ]
    facts += [
        format_count(session.message_count or 0, "message"),
        clock.format_relative(session.last_active or session.started_at, now),
    ]
    if room is not None:
        while len(facts) > 1 and measure_text(before + title + SPACE + BETWEEN.join(facts)) > room:
            facts.pop(-2 if len(facts) > 2 else -1)  # the id and the time are dropped last
        left = room - measure_text(before + SPACE + BETWEEN.join(facts))
        title = make_printable(title, width_limit=max(SHORTEST_TITLE, left))
    name = apply_style(title, *(["bold", "underline"] if is_named else ["bold"]))
    return f"{apply_style(before, 'cyan')}{name}{SPACE}{apply_style(BETWEEN.join(facts), 'dim')}"


def _make_json(first: Relative, chosen: object) -> dict[str, Any]:
    """Return the family as nested JSON objects, beginning with the session `first`. `chosen` is the value of
    `--json`, which may name the fields of each session to include. The field `children` is always included."""
    root = _make_fields(first, chosen)
    stack = [(first, root)]
    while stack:
        session, into = stack.pop()
        for child in session.children:
            fields = _make_fields(child, chosen)
            into["children"].append(fields)
            stack.append((child, fields))
    return root


def _make_fields(session: Relative, chosen: object) -> dict[str, Any]:
    row = select_fields({name: getattr(session, name) for name in JSON_FIELDS}, chosen)
    return {**row, "children": []}
