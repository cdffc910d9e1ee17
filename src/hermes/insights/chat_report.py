"""The report as a message in a chat: short, and Markdown that every platform shows alike.

Names come from outside. They stand in code spans, in which nothing is marked up, and cannot leave them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes import clock
from hermes.insights import number_format
from hermes.insights.number_format import counted, plural, price, short
from hermes.text import printable

Report = dict[str, Any]

MOST_MODELS, MOST_TOOLS, MOST_SKILLS = 5, 8, 5
LONGEST_NAME = 60


def markdown(report: Report) -> str:
    """The same numbers as in the terminal, the most telling of them."""
    if report["empty"]:
        return _plain(number_format.nothing(report))
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    overview, costs, activity = report["overview"], report["costs"], report["activity"]
    yield f"**Hermes Insights** · last {_plain(number_format.window(report))}"
    yield number_format.period(report)
    yield ""
    yield (
        f"**{plural(overview['total_sessions'], 'session')}** · {plural(overview['total_messages'], 'message')}"
        f" · {plural(overview['total_tool_calls'], 'tool call')} · {short(overview['total_tokens'])} tokens"
    )
    if overview["total_hours"]:
        average = number_format.duration(overview["avg_session_duration"])
        yield f"Active ~{number_format.duration(overview['total_hours'] * clock.HOUR)} · ~{average} a session"
    yield f"Cost: {' · '.join([price(costs['cost'], costs['cost_status']), *number_format.cost_notes(report)])}"
    yield from _list(
        "Models",
        [
            f"{plural(one['sessions'], 'session')}, {short(one['total_tokens'])} tokens,"
            f" {price(one['cost'], one['cost_status'])}"
            for one in report["models"][:MOST_MODELS]
        ],
        [one["model"] for one in report["models"]],
    )
    if number_format.shows_platforms(report):
        platforms = report["platforms"]
        said = [
            f"{plural(one['sessions'], 'session')}, {plural(one['messages'], 'message')}" for one in platforms
        ]
        yield from _list("Platforms", said, [one["platform"] for one in platforms])
    tools = report["tools"]
    said = [f"{counted(one['count'])} ({one['percentage']:.0f}%)" for one in tools[:MOST_TOOLS]]
    yield from _list("Tools", said, [one["tool"] for one in tools])
    skills = report["skills"]["top_skills"]
    said = [plural(one["total_count"], "time") for one in skills[:MOST_SKILLS]]
    yield from _list("Skills", said, [one["skill"] for one in skills])
    yield ""
    yield "**Activity**"
    yield f"Peak hours: {', '.join(number_format.peak_hours(report, 3))}"
    streak = f" · best streak {activity['max_streak']} days" if activity["max_streak"] > 1 else ""
    yield f"{plural(activity['active_days'], 'active day')}{streak}"


def _list(title: str, said: list[str], names: list[str]) -> Iterator[str]:
    """Lines of a name and what is said of it; how many more names there are."""
    if not said:
        return
    yield ""
    yield f"**{title}**"
    for name, what in zip(names, said, strict=False):
        yield f"- {_code(name)}: {what}"
    if len(names) > len(said):
        yield f"- … and {counted(len(names) - len(said))} more"


def _code(name: str) -> str:
    shown = printable(name, width_limit=LONGEST_NAME).replace("`", "'")
    return f"`{shown or '?'}`"


def _plain(text: str) -> str:
    """One line in which nothing is marked up."""
    return "".join(f"\\{sign}" if sign in "\\`*_~[]<>#|" else sign for sign in printable(text))
