"""The insights report as a self-contained HTML page: charts, tables, light and dark mode, no network access.

The Content-Security-Policy of the page names its two scripts and its style by their hashes. No other script can
run and nothing can be fetched, whatever a title contains. All text from outside is escaped here; the scripts
receive numbers only.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from hermes import clock
from hermes.insights import number_format
from hermes.insights.calendar import DAYS
from hermes.insights.number_format import format_number, format_plural, format_price, shorten_number
from hermes.text import make_printable

Report = dict[str, Any]

HERE = Path(__file__).parent
MOST_TOOLS, MOST_SKILLS = 25, 15
MOST_DAYS = 3 * 366
"""Maximum number of days in a chart. With more days, each bar would be narrower than a pixel."""


def render_page(report: Report) -> str:
    style = _read_file("vendored/uPlot.css") + _read_file("web/page.css")
    body = "\n".join(_render_empty(report) if report["empty"] else _render_body(report))
    scripts = []
    if not report["empty"]:
        # The licence must accompany the code.
        licence = _read_file("vendored/uPlot.txt").replace("*/", "")
        scripts = [f"/*\n{licence}*/\n{_read_file('vendored/uPlot.js')}", _read_file("web/page.js")]
    allowed = " ".join(map(_compute_hash, scripts)) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_compute_hash(style)};"
        " base-uri 'none'; form-action 'none'"
    )
    return (
        _read_file("web/page.html")
        .replace("{{policy}}", escape(policy))
        .replace("{{title}}", _escape_text(f"Hermes Insights: last {number_format.format_window(report)}"))
        .replace("{{style}}", style)
        .replace("{{scripts}}", "\n".join(f"<script>{script}</script>" for script in scripts))
        .replace("{{data}}", _format_data(report))
        .replace("{{body}}", body)  # last, so that placeholders in it are not replaced
    )


def _read_file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _compute_hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _escape_text(text: object, limit: int | None = None) -> str:
    return escape(make_printable(str(text), width_limit=limit))


# Data of the charts


def _format_data(report: Report) -> str:
    """Return the figures that the scripts of the page draw, as JSON. The JSON text cannot end the script
    element that contains it."""
    if report["empty"]:
        return "{}"
    days = list(_fill_days(report["daily"]))
    data = {
        "days": [_count_seconds(day["date"]) for day in days],
        "sessions": [day["sessions"] for day in days],
        "tokens": [day["total_tokens"] for day in days],
        "cost": [day["cost"] for day in days],
        "hours": [row["count"] for row in report["activity"]["by_hour"]],
        "weekdays": [row["count"] for row in report["activity"]["by_day"]],
        "weekdayNames": DAYS,
    }
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def _fill_days(daily: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the totals of every day from the first to the last day in `daily`. A day without sessions has
    zeros. If the period is very long, only its last `MOST_DAYS` days are yielded."""
    known = {date.fromisoformat(row["date"]): row for row in daily}
    last = max(known)
    day = max(min(known), last - timedelta(days=min(MOST_DAYS, last.toordinal() - 1)))
    while day <= last:
        yield known.get(
            day, {"date": day.isoformat(), "sessions": 0, "messages": 0, "total_tokens": 0, "cost": 0.0}
        )
        day += timedelta(days=1)


def _count_seconds(day: str) -> int:
    """Return a date as epoch seconds of its midnight in UTC, as the charts expect."""
    return (date.fromisoformat(day).toordinal() - date(1970, 1, 1).toordinal()) * clock.DAY


# Content of the page


def _render_empty(report: Report) -> Iterator[str]:
    yield f"<header><h1>Hermes Insights</h1></header><p>{_escape_text(number_format.format_nothing(report))}</p>"


def _render_body(report: Report) -> Iterator[str]:
    window = _escape_text(f"Last {number_format.format_window(report)}")
    period = _escape_text(number_format.format_period(report))
    made = _escape_text(f"made {clock.format_iso(report['generated_at'])}")
    yield (
        f"<header><h1>Hermes Insights</h1><p>{window} · {period}"
        f' · <span class="made">{made}</span></p></header>'
    )
    yield from _render_figures(report)
    yield _render_chart("sessions", "Sessions by day", wide=True)
    yield _render_chart("tokens", "Tokens by day", wide=True)
    if any(day["cost"] for day in report["daily"]):
        yield _render_chart("cost", "Cost by day, in dollars, as far as it is known", wide=True)
    yield _render_chart("hours", "By hour of the day")
    yield _render_chart("weekdays", "By day of the week")
    yield '<div class="tables">'
    yield from _render_models(report)
    yield from _render_platforms(report)
    yield from _render_conversations(report)
    yield from _render_tools(report)
    yield from _render_skills(report)
    yield from _render_notable(report)
    yield "</div>"


def _render_figures(report: Report) -> Iterator[str]:
    overview, costs, activity = report["overview"], report["costs"], report["activity"]
    active, average = number_format.format_active_time(report)
    streak = f"best streak {activity['max_streak']} days" if activity["max_streak"] > 1 else ""
    conversations = format_plural(report["conversations"]["total"], "conversation")
    billed = f"{number_format.format_dollars(costs['actual'])} of it billed" if costs["actual"] else ""
    tokens = (
        " in, ".join(shorten_number(overview[f"total_{way}_tokens"]) for way in ("input", "output")) + " out"
    )
    figures = [
        ("Sessions", format_number(overview["total_sessions"]), conversations),
        (
            "Messages",
            format_number(overview["total_messages"]),
            f"{format_number(overview['user_messages'])} from you",
        ),
        (
            "Tokens",
            shorten_number(overview["total_tokens"]),
            tokens,
        ),
        ("Cost", format_price(costs["cost"], costs["cost_status"]), billed),
        (
            "Tool calls",
            format_number(overview["total_tool_calls"]),
            f"{format_plural(len(report['tools']), 'tool')} used",
        ),
        (
            "Active time",
            active,
            f"{average} a session",
        ),
        ("Active days", format_number(activity["active_days"]), streak),
    ]
    yield '<dl class="figures">'
    for label, value, more in (map(_escape_text, figure) for figure in figures):
        yield f"<div><dt>{label}</dt><dd>{value}<small>{more}</small></dd></div>"
    yield "</dl>"
    if notes := number_format.list_cost_notes(report):
        yield f'<p class="note">{_escape_text(" · ".join(notes).capitalize())}</p>'


def _render_chart(name: str, title: str, *, wide: bool = False) -> str:
    size = ' class="wide"' if wide else ""
    return (
        f'<section{size}><h2>{_escape_text(title)}</h2><div class="chart" data-chart="{name}"></div>'
        '<p class="reading"></p></section>'
    )


def _render_models(report: Report) -> Iterator[str]:
    models = report["models"]
    rows = [
        (
            model["model"],
            format_number(model["sessions"]),
            shorten_number(model["total_tokens"]),
            format_price(model["cost"], model["cost_status"]),
        )
        for model in models
    ]
    headings = ("Model", "Sessions", "Tokens", "Cost")
    yield from _render_table("Tokens by model", headings, rows, [model["total_tokens"] for model in models])
    paid = sorted((model for model in models if model["cost"]), key=lambda model: -model["cost"])
    if paid:
        costs = [(model["model"], format_price(model["cost"], model["cost_status"])) for model in paid]
        yield from _render_table("Cost by model", ("Model", "Cost"), costs, [model["cost"] for model in paid])


def _render_platforms(report: Report) -> Iterator[str]:
    platforms = report["platforms"]
    rows = [
        (
            platform["platform"],
            format_number(platform["sessions"]),
            format_number(platform["messages"]),
            format_price(platform["cost"], platform["cost_status"]),
        )
        for platform in platforms
    ]
    headings = ("Platform", "Sessions", "Messages", "Cost")
    yield from _render_table("Platforms", headings, rows, [platform["sessions"] for platform in platforms])


def _render_tools(report: Report) -> Iterator[str]:
    tools = report["tools"][:MOST_TOOLS]
    rows = [(tool["tool"], format_number(tool["count"]), f"{tool['percentage']:.1f}%") for tool in tools]
    more = len(report["tools"]) - len(tools)
    yield from _render_table(
        "Tools",
        ("Tool", "Calls", "%"),
        rows,
        [tool["count"] for tool in tools],
        note=f"and {format_plural(more, 'more tool')}" if more else "",
    )


def _render_skills(report: Report) -> Iterator[str]:
    skills = report["skills"]["top_skills"][:MOST_SKILLS]
    rows = [
        (skill["skill"], format_number(skill["view_count"]), format_number(skill["manage_count"]))
        for skill in skills
    ]
    headings = ("Skill", "Viewed", "Edited")
    yield from _render_table("Skills", headings, rows, [skill["total_count"] for skill in skills])


def _render_conversations(report: Report) -> Iterator[str]:
    costliest = report["conversations"]["costliest"]
    rows = [
        (
            conversation["name"] or conversation["id"],
            format_number(conversation["sessions"]),
            format_price(conversation["cost"], conversation["cost_status"]),
            format_price(conversation["cost_in_all"], conversation["cost_status_in_all"]),
        )
        for conversation in costliest
    ]
    yield from _render_table(
        "Costliest conversations",
        ("Conversation", "Sessions", "Cost", "In all"),
        rows,
        [conversation["cost"] for conversation in costliest],
        note="with compressed segments and subagents; “In all” includes the time before this period"
        if rows
        else "",
    )


def _render_notable(report: Report) -> Iterator[str]:
    rows = [
        (
            f"{session['label']}: {session['title'] or session['session_id']}",
            session["value"],
            session["date"],
        )
        for session in report["top_sessions"]
    ]
    yield from _render_table("Notable sessions", ("Session", "", ""), rows)


def _render_table(
    title: str,
    headings: Iterable[str],
    rows: Sequence[Sequence[str]],
    amounts: Sequence[float] = (),
    note: str = "",
) -> Iterator[str]:
    """Render a table. Each row has a bar whose length is proportional to its amount."""
    if not rows:
        return
    most = max(amounts, default=0)
    yield f"<section><h2>{_escape_text(title)}</h2><table><thead><tr>"
    yield "".join(f"<th>{_escape_text(heading)}</th>" for heading in headings)
    yield "</tr></thead><tbody>"
    for at, (name, *cells) in enumerate(rows):
        drawn = _render_bar(amounts[at] / most) if most else ""
        columns = "".join(f"<td>{_escape_text(cell)}</td>" for cell in cells)
        yield f"<tr><th><bdi>{_escape_text(name, 120)}</bdi>{drawn}</th>{columns}</tr>"
    yield "</tbody></table>"
    if note:
        yield f'<p class="note">{_escape_text(note)}</p>'
    yield "</section>"


def _render_bar(part: float) -> str:
    return (
        '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{max(0.5, 100 * part):.1f}" height="1"/></svg>'
    )
