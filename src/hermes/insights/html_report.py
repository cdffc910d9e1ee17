"""The report as one page that needs nothing else: charts, tables, a light and a dark face, no network.

Its policy names the two scripts and the style by their hashes, so that nothing else in it can run and nothing can be
fetched, whatever a title holds. Every text from outside is escaped here; the scripts get numbers only.
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
from hermes.insights.number_format import counted, plural, price, short
from hermes.text import printable

Report = dict[str, Any]

HERE = Path(__file__).parent
MOST_TOOLS, MOST_SKILLS = 25, 15
MOST_DAYS = 3 * 366
"""More would be less than a dot each."""


def page(report: Report) -> str:
    style = _file("vendored/uPlot.css") + _file("web/page.css")
    body = "\n".join(_empty(report) if report["empty"] else _body(report))
    scripts = []
    if not report["empty"]:
        # The licence asks to go where the code goes.
        licence = _file("vendored/uPlot.txt").replace("*/", "")
        scripts = [f"/*\n{licence}*/\n{_file('vendored/uPlot.js')}", _file("web/page.js")]
    allowed = " ".join(map(_hash, scripts)) or "'none'"
    policy = f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    return (
        _file("web/page.html")
        .replace("{{policy}}", escape(policy))
        .replace("{{title}}", _text(f"Hermes Insights: last {number_format.window(report)}"))
        .replace("{{style}}", style)
        .replace("{{scripts}}", "\n".join(f"<script>{script}</script>" for script in scripts))
        .replace("{{data}}", _data(report))
        .replace("{{body}}", body)  # last: what is in it is never looked at again
    )


def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _text(text: object, limit: int | None = None) -> str:
    return escape(printable(str(text), width_limit=limit))


# What the charts draw


def _data(report: Report) -> str:
    """Numbers for the scripts. None of it can end the element that holds it."""
    if report["empty"]:
        return "{}"
    days = list(_filled(report["daily"]))
    data = {
        "days": [_seconds(day["date"]) for day in days],
        "sessions": [day["sessions"] for day in days],
        "tokens": [day["total_tokens"] for day in days],
        "cost": [day["cost"] for day in days],
        "hours": [one["count"] for one in report["activity"]["by_hour"]],
        "weekdays": [one["count"] for one in report["activity"]["by_day"]],
        "weekdayNames": DAYS,
    }
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def _filled(daily: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every day from the first to the last, also those on which nothing was done."""
    known = {date.fromisoformat(one["date"]): one for one in daily}
    last = max(known)
    day = max(min(known), last - timedelta(days=min(MOST_DAYS, last.toordinal() - 1)))
    while day <= last:
        yield known.get(
            day, {"date": day.isoformat(), "sessions": 0, "messages": 0, "total_tokens": 0, "cost": 0.0}
        )
        day += timedelta(days=1)


def _seconds(day: str) -> int:
    """A date as the charts, which know no time zone, count seconds."""
    return (date.fromisoformat(day).toordinal() - date(1970, 1, 1).toordinal()) * clock.DAY


# What is written


def _empty(report: Report) -> Iterator[str]:
    yield f"<header><h1>Hermes Insights</h1></header><p>{_text(number_format.nothing(report))}</p>"


def _body(report: Report) -> Iterator[str]:
    asked = f"Last {number_format.window(report)}"
    made = f"made {clock.iso(report['generated_at'])}"
    yield (
        f"<header><h1>Hermes Insights</h1><p>{_text(asked)} · {_text(number_format.period(report))}"
        f' · <span class="made">{_text(made)}</span></p></header>'
    )
    yield from _figures(report)
    yield _chart("sessions", "Sessions by day", wide=True)
    yield _chart("tokens", "Tokens by day", wide=True)
    if any(day["cost"] for day in report["daily"]):
        yield _chart("cost", "Cost by day, in dollars, as far as it is known", wide=True)
    yield _chart("hours", "By hour of the day")
    yield _chart("weekdays", "By day of the week")
    yield '<div class="tables">'
    yield from _models(report)
    yield from _platforms(report)
    yield from _conversations(report)
    yield from _tools(report)
    yield from _skills(report)
    yield from _notable(report)
    yield "</div>"


def _figures(report: Report) -> Iterator[str]:
    overview, costs, activity = report["overview"], report["costs"], report["activity"]
    streak = f"best streak {activity['max_streak']} days" if activity["max_streak"] > 1 else ""
    conversations = plural(report["conversations"]["total"], "conversation")
    billed = f"{number_format.dollars(costs['actual'])} of it billed" if costs["actual"] else ""
    figures = [
        ("Sessions", counted(overview["total_sessions"]), conversations),
        ("Messages", counted(overview["total_messages"]), f"{counted(overview['user_messages'])} from you"),
        (
            "Tokens",
            short(overview["total_tokens"]),
            f"{short(overview['total_input_tokens'])} in, {short(overview['total_output_tokens'])} out",
        ),
        ("Cost", price(costs["cost"], costs["cost_status"]), billed),
        ("Tool calls", counted(overview["total_tool_calls"]), f"{plural(len(report['tools']), 'tool')} used"),
        (
            "Active time",
            f"~{number_format.duration(overview['total_hours'] * clock.HOUR)}",
            f"~{number_format.duration(overview['avg_session_duration'])} a session",
        ),
        ("Active days", counted(activity["active_days"]), streak),
    ]
    yield '<dl class="figures">'
    for label, value, more in figures:
        yield f"<div><dt>{_text(label)}</dt><dd>{_text(value)}<small>{_text(more)}</small></dd></div>"
    yield "</dl>"
    if notes := number_format.cost_notes(report):
        yield f'<p class="note">{_text(" · ".join(notes).capitalize())}</p>'


def _chart(name: str, title: str, *, wide: bool = False) -> str:
    size = ' class="wide"' if wide else ""
    return f'<section{size}><h2>{_text(title)}</h2><div class="chart" data-chart="{name}"></div></section>'


def _models(report: Report) -> Iterator[str]:
    models = report["models"]
    rows = [
        (
            one["model"],
            counted(one["sessions"]),
            short(one["total_tokens"]),
            price(one["cost"], one["cost_status"]),
        )
        for one in models
    ]
    headings = ("Model", "Sessions", "Tokens", "Cost")
    yield from _table("Tokens by model", headings, rows, [one["total_tokens"] for one in models])
    paid = sorted((one for one in models if one["cost"]), key=lambda one: -one["cost"])
    if paid:
        costs = [(one["model"], price(one["cost"], one["cost_status"])) for one in paid]
        yield from _table("Cost by model", ("Model", "Cost"), costs, [one["cost"] for one in paid])


def _platforms(report: Report) -> Iterator[str]:
    platforms = report["platforms"]
    rows = [
        (
            one["platform"],
            counted(one["sessions"]),
            counted(one["messages"]),
            price(one["cost"], one["cost_status"]),
        )
        for one in platforms
    ]
    headings = ("Platform", "Sessions", "Messages", "Cost")
    yield from _table("Platforms", headings, rows, [one["sessions"] for one in platforms])


def _tools(report: Report) -> Iterator[str]:
    tools = report["tools"][:MOST_TOOLS]
    rows = [(one["tool"], counted(one["count"]), f"{one['percentage']:.1f}%") for one in tools]
    more = len(report["tools"]) - len(tools)
    yield from _table(
        "Tools",
        ("Tool", "Calls", "%"),
        rows,
        [one["count"] for one in tools],
        note=f"and {plural(more, 'more tool')}" if more else "",
    )


def _skills(report: Report) -> Iterator[str]:
    skills = report["skills"]["top_skills"][:MOST_SKILLS]
    rows = [(one["skill"], counted(one["view_count"]), counted(one["manage_count"])) for one in skills]
    headings = ("Skill", "Viewed", "Edited")
    yield from _table("Skills", headings, rows, [one["total_count"] for one in skills])


def _conversations(report: Report) -> Iterator[str]:
    costliest = report["conversations"]["costliest"]
    rows = [
        (
            one["name"] or one["id"],
            counted(one["sessions"]),
            price(one["cost"], one["cost_status"]),
            price(one["cost_in_all"], one["cost_status_in_all"]),
        )
        for one in costliest
    ]
    yield from _table(
        "Costliest conversations",
        ("Conversation", "Sessions", "Cost", "In all"),
        rows,
        [one["cost"] for one in costliest],
        note="with compressed segments and subagents; in all: also before this window" if rows else "",
    )


def _notable(report: Report) -> Iterator[str]:
    rows = [
        (f"{one['label']}: {one['title'] or one['session_id']}", one["value"], one["date"])
        for one in report["top_sessions"]
    ]
    yield from _table("Notable sessions", ("Session", "", ""), rows)


def _table(
    title: str,
    headings: Iterable[str],
    rows: Sequence[Sequence[str]],
    amounts: Sequence[float] = (),
    note: str = "",
) -> Iterator[str]:
    """A table whose rows have a bar under them each, as long as their amount."""
    if not rows:
        return
    most = max(amounts, default=0)
    yield f"<section><h2>{_text(title)}</h2><table><thead><tr>"
    yield "".join(f"<th>{_text(heading)}</th>" for heading in headings)
    yield "</tr></thead><tbody>"
    for at, (name, *cells) in enumerate(rows):
        drawn = _bar(amounts[at] / most) if most else ""
        told = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        yield f"<tr><th><bdi>{_text(name, 120)}</bdi>{drawn}</th>{told}</tr>"
    yield "</tbody></table>"
    if note:
        yield f'<p class="note">{_text(note)}</p>'
    yield "</section>"


def _bar(part: float) -> str:
    return (
        '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{max(0.5, 100 * part):.1f}" height="1"/></svg>'
    )
