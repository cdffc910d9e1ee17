"""The insights report as a message on a platform: short, in Markdown that every platform renders alike.

Names in the report, such as those of models and tools, come from outside. They are put into code spans, in
which no markup applies, and are changed so that they cannot end the span.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes.insights import number_format
from hermes.insights.number_format import format_number, format_plural, format_price, shorten_number
from hermes.text import make_printable

Report = dict[str, Any]

MOST_MODELS, MOST_TOOLS, MOST_SKILLS = 5, 8, 5
LONGEST_NAME = 60


def format_markdown(report: Report) -> str:
    """Return the most important figures of the insights report as Markdown."""
    if report["empty"]:
        return _escape_line(number_format.format_nothing(report))
    return "\n".join(_format_lines(report))


def _format_lines(report: Report) -> Iterator[str]:
    overview, costs, activity = report["overview"], report["costs"], report["activity"]
    yield f"**Hermes Insights** · last {_escape_line(number_format.format_window(report))}"
    yield number_format.format_period(report)
    yield ""
    yield (
        f"**{format_plural(overview['total_sessions'], 'session')}**"
        f" · {format_plural(overview['total_messages'], 'message')}"
        f" · {format_plural(overview['total_tool_calls'], 'tool call')}"
        f" · {shorten_number(overview['total_tokens'])} tokens"
    )
    if report["active_time"]["seconds"]:
        yield "Active {} · {} a session".format(*number_format.format_active_time(report))
    cost = format_price(costs["cost"], costs["cost_status"])
    yield f"Cost: {' · '.join([cost, *number_format.list_cost_notes(report)])}"
    yield from _format_list(
        "Models",
        [
            f"{format_plural(row['sessions'], 'session')}, {shorten_number(row['total_tokens'])} tokens,"
            f" {format_price(row['cost'], row['cost_status'])}"
            for row in report["models"][:MOST_MODELS]
        ],
        [row["model"] for row in report["models"]],
    )
    if number_format.has_platforms(report):
        platforms = report["platforms"]
        lines = [
            f"{format_plural(row['sessions'], 'session')}, {format_plural(row['messages'], 'message')}"
            for row in platforms
        ]
        yield from _format_list("Platforms", lines, [row["platform"] for row in platforms])
    tools = report["tools"]
    lines = [f"{format_number(row['count'])} ({row['percentage']:.0f}%)" for row in tools[:MOST_TOOLS]]
    yield from _format_list("Tools", lines, [row["tool"] for row in tools])
    skills = report["skills"]["top_skills"]
    lines = [format_plural(row["total_count"], "time") for row in skills[:MOST_SKILLS]]
    yield from _format_list("Skills", lines, [row["skill"] for row in skills])
    yield ""
    yield "**Activity**"
    yield f"Peak hours: {', '.join(number_format.list_peak_hours(report, 3))}"
    streak = f" · best streak {activity['max_streak']} days" if activity["max_streak"] > 1 else ""
    yield f"{format_plural(activity['active_days'], 'active day')}{streak}"


def _format_list(title: str, lines: list[str], names: list[str]) -> Iterator[str]:
    """Yield a line for each name with its figures, and a line with the number of names left out."""
    if not lines:
        return
    yield ""
    yield f"**{title}**"
    for name, what in zip(names, lines, strict=False):
        yield f"- {_format_code(name)}: {what}"
    if len(names) > len(lines):
        yield f"- … and {format_number(len(names) - len(lines))} more"


def _format_code(name: str) -> str:
    line = make_printable(name, width_limit=LONGEST_NAME).replace("`", "'")
    return f"`{line or '?'}`"


def _escape_line(text: str) -> str:
    """Return one line of text with all markup escaped."""
    return "".join(f"\\{sign}" if sign in "\\`*_~[]<>#|" else sign for sign in make_printable(text))
