"""The report of `hermes insights` on a terminal: the documented sections, drawn with blocks, at any width from 60."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hermes import clock
from hermes.cli.io.columns import Column, columns_taken, fit
from hermes.cli.io.output import styled
from hermes.insights import number_format
from hermes.insights.number_format import (
    format_amount,
    format_number,
    format_plural,
    format_price,
    shorten_number,
)
from hermes.text import make_printable

Report = dict[str, Any]

MARGIN = "  "
NARROWEST, WIDEST = 60, 100
BOX = 58
DAY_BAR = 15
LONGEST_BAR = 40
HOUR_ROWS = 3
MOST_TOOLS, MOST_SKILLS = 15, 10

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = " ▁▂▃▄▅▆▇█"


def lines(report: Report, width: int | None) -> Iterator[str]:
    """The report for a terminal of this many columns; None where nobody looks."""
    if report["empty"]:
        yield MARGIN + make_printable(number_format.format_nothing(report))
        return
    room = min(max(width or NARROWEST, NARROWEST), WIDEST) - len(MARGIN)
    yield ""
    for line in _sections(report, room):
        yield f"{MARGIN}{line}".rstrip()


def _sections(report: Report, room: int) -> Iterator[str]:
    yield from _title(report)
    yield ""
    yield f"Period: {number_format.format_period(report)}"
    yield from _overview(report, room)
    yield from _models(report, room)
    if number_format.has_platforms(report):
        yield from _platforms(report, room)
    yield from _tools(report, room)
    yield from _skills(report, room)
    yield from _activity(report, room)
    yield from _conversations(report, room)
    yield from _notable(report, room)


def _title(report: Report) -> Iterator[str]:
    inner = BOX - 2
    asked = make_printable(f"Last {number_format.format_window(report)}", width_limit=inner - 2)
    yield styled(f"╔{'═' * inner}╗", "cyan")
    for text, style in (("Hermes Insights", "bold"), (asked, "dim")):
        left = (inner - columns_taken(text)) // 2
        right = inner - columns_taken(text) - left
        yield styled("║", "cyan") + " " * left + styled(text, style) + " " * right + styled("║", "cyan")
    yield styled(f"╚{'═' * inner}╝", "cyan")


def _overview(report: Report, room: int) -> Iterator[str]:
    overview, costs = report["overview"], report["costs"]
    yield from _heading("Overview", room)
    pairs = [
        ("Sessions", format_amount(overview["total_sessions"])),
        ("Conversations", format_amount(report["conversations"]["total"])),
        ("Messages", format_amount(overview["total_messages"])),
        ("User messages", format_amount(overview["user_messages"])),
        ("Tool calls", format_amount(overview["total_tool_calls"])),
        ("Total tokens", format_amount(overview["total_tokens"])),
        ("Input tokens", format_amount(overview["total_input_tokens"])),
        ("Output tokens", format_amount(overview["total_output_tokens"])),
        ("Cache read", format_amount(overview["total_cache_read_tokens"])),
        ("Cache written", format_amount(overview["total_cache_write_tokens"])),
        ("Active time", f"~{number_format.format_duration(overview['total_hours'] * clock.HOUR)}"),
        ("Avg session", f"~{number_format.format_duration(overview['avg_session_duration'])}"),
        ("Avg messages", f"{overview['avg_messages_per_session']:.1f}"),
        ("Avg tokens", format_amount(overview["avg_tokens_per_session"])),
        ("Cost", format_price(costs["cost"], costs["cost_status"])),
    ]
    if costs["actual"]:
        pairs.append(("Billed of it", number_format.format_dollars(costs["actual"])))
    for at in range(0, len(pairs), 2):
        yield "   ".join(f"{styled(f'{label:<15}', 'dim')}{value:>12}" for label, value in pairs[at : at + 2])
    for note in number_format.list_cost_notes(report):
        yield styled(f"({note})", "dim")


def _models(report: Report, room: int) -> Iterator[str]:
    rows = [
        (
            one["model"],
            format_amount(one["sessions"], 8),
            shorten_number(one["total_tokens"]),
            format_price(one["cost"], one["cost_status"]),
        )
        for one in report["models"]
    ]
    amounts = [one["total_tokens"] for one in report["models"]]
    yield from _heading("Models Used", room)
    yield from _table(("Model", "Sessions", "Tokens", "Cost"), (8, 8, 11), rows, room, amounts, room > BOX)


def _platforms(report: Report, room: int) -> Iterator[str]:
    rows = [
        (
            one["platform"],
            format_amount(one["sessions"], 8),
            format_amount(one["messages"], 8),
            shorten_number(one["total_tokens"]),
            format_price(one["cost"], one["cost_status"]),
        )
        for one in report["platforms"]
    ]
    amounts = [one["sessions"] for one in report["platforms"]]
    yield from _heading("Platforms", room)
    headings = ("Platform", "Sessions", "Messages", "Tokens", "Cost")
    yield from _table(headings, (8, 9, 8, 11), rows, room, amounts, room > BOX)


def _tools(report: Report, room: int) -> Iterator[str]:
    tools = report["tools"]
    if not tools:
        return
    yield from _heading("Top Tools", room)
    shown = tools[:MOST_TOOLS]
    rows = [(one["tool"], format_amount(one["count"], 8), f"{one['percentage']:.1f}%") for one in shown]
    yield from _table(("Tool", "Calls", "%"), (8, 6), rows, room, [one["count"] for one in shown], True)
    if len(tools) > MOST_TOOLS:
        yield styled(f"... and {format_plural(len(tools) - MOST_TOOLS, 'more tool')}", "dim")


def _skills(report: Report, room: int) -> Iterator[str]:
    skills = report["skills"]["top_skills"]
    if not skills:
        return
    yield from _heading("Top Skills", room)
    now = clock.now()
    rows = [
        (
            one["skill"],
            format_amount(one["view_count"], 7),
            format_amount(one["manage_count"], 7),
            clock.format_relative(one["last_used_at"], now),
        )
        for one in skills[:MOST_SKILLS]
    ]
    yield from _table(("Skill", "Viewed", "Edited", "Last used"), (7, 7, 11), rows, room)


def _activity(report: Report, room: int) -> Iterator[str]:
    activity = report["activity"]
    yield from _heading("Activity", room)
    most = max((one["count"] for one in activity["by_day"]), default=0)
    for one in activity["by_day"]:
        yield f"{one['day']}  {styled(bar(one['count'], most, DAY_BAR), 'cyan')} {format_number(one['count'])}"
    yield ""
    for row in histogram([one["count"] for one in activity["by_hour"]], HOUR_ROWS):
        yield styled(row, "cyan")
    yield styled(f"{'12AM':<12}{'6AM':<12}{'12PM':<12}{'6PM':<12}", "dim")
    yield ""
    peaks = "Peak hours: "
    for said in number_format.list_peak_hours(report):
        if len(peaks) + len(said) <= room:
            peaks += f"{said}, "
    yield peaks.rstrip(", ")
    yield f"Active days: {format_number(activity['active_days'])}"
    if activity["max_streak"] > 1:
        yield f"Best streak: {activity['max_streak']} days"


def _conversations(report: Report, room: int) -> Iterator[str]:
    costliest = report["conversations"]["costliest"]
    if not costliest:
        return
    yield from _heading("Costliest Conversations", room)
    rows = [
        (
            one["name"] or one["id"],
            format_amount(one["sessions"], 8),
            format_price(one["cost"], one["cost_status"]),
            format_price(one["cost_in_all"], one["cost_status_in_all"]),
        )
        for one in costliest
    ]
    yield from _table(("Conversation", "Sessions", "Cost", "In all"), (8, 11, 11), rows, room)


def _notable(report: Report, room: int) -> Iterator[str]:
    if not report["top_sessions"]:
        return
    yield from _heading("Notable Sessions", room)
    widest = max(len(one["value"]) for one in report["top_sessions"])
    for one in report["top_sessions"]:
        line = f"{one['label']:<15}  {one['value']:<{widest}}  {one['date']}  "
        line += make_printable(one["session_id"], width_limit=room - len(line))
        left = room - columns_taken(line) - 2
        if one["title"] and left > DAY_BAR:
            line += "  " + styled(make_printable(one["title"], width_limit=left), "dim")
        yield line


def _heading(text: str, room: int) -> Iterator[str]:
    yield ""
    yield styled(text, "bold")
    yield styled("─" * room, "dim")


def _table(
    headings: Sequence[str],
    widths: Sequence[int],
    rows: Sequence[tuple[str, ...]],
    room: int,
    amounts: Sequence[float] = (),
    drawn: bool = False,
) -> Iterator[str]:
    """A name, numbers to the right of it and, `drawn`, a bar for each; names get what room they need and there is."""
    left = room - sum(widths) - len(widths) - (DAY_BAR + 2 if drawn else 0)
    names = [make_printable(row[0]) for row in rows]
    width = min(left, max(columns_taken(text) for text in (headings[0], *names)))
    length = min(LONGEST_BAR, room - width - sum(widths) - len(widths) - 2)
    most = max(amounts, default=0)
    yield styled(f"{_padded(headings[0], width)} {_numbers(headings[1:], widths)}", "dim")
    for at, row in enumerate(rows):
        line = f"{_padded(names[at], width)} {_numbers(row[1:], widths)}"
        yield f"{line}  {styled(bar(amounts[at], most, length), 'cyan')}" if drawn else line


def _padded(name: str, width: int) -> str:
    return fit(name, Column("", width, width - 1 if columns_taken(name) > width else 0))


def _numbers(cells: Iterable[str], widths: Iterable[int]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def bar(amount: float, most: float, width: int) -> str:
    """Blocks as long as the amount, to an eighth of a column; at least one for anything but nothing."""
    if not amount or not most:
        return ""
    eighths = max(8, round(8 * width * amount / most))
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def histogram(amounts: Sequence[int], rows: int) -> Iterator[str]:
    """Columns of blocks, each two wide, from the top row down; anything but nothing can be seen."""
    most = max(amounts, default=0)
    heights = [max(1, round(8 * rows * one / most)) if one else 0 for one in amounts]
    for row in reversed(range(rows)):
        yield "".join(LEVELS[min(8, max(0, height - 8 * row))] * 2 for height in heights)
