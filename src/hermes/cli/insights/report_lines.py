"""Terminal output of `hermes insights`. It has the sections that the reference documents, and further ones.
Bars are drawn with block characters. The output is at least 60 columns wide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hermes import clock
from hermes.cli.io.output import apply_style
from hermes.cli.io.text_columns import Column, fit_text, measure_text
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
"""The width of the box around the title. Tables have bars only if the terminal is wider."""
DAY_BAR = 15
LONGEST_BAR = 40
HOUR_ROWS = 3
"""The height of the histogram of hours, in lines."""
MOST_TOOLS, MOST_SKILLS = 15, 10

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = " ▁▂▃▄▅▆▇█"
"""Blocks that are 0 to 8 eighths of a character wide (`EIGHTHS`) or high (`LEVELS`)."""


def format_report(report: Report, width: int | None) -> Iterator[str]:
    """Yield the lines of the report for a terminal of `width` columns. `width` is None if the output is not a
    terminal."""
    if report["empty"]:
        yield MARGIN + make_printable(number_format.format_nothing(report))
        return
    room = min(max(width or NARROWEST, NARROWEST), WIDEST) - len(MARGIN)
    yield ""
    for line in _format_sections(report, room):
        yield f"{MARGIN}{line}".rstrip()


def _format_sections(report: Report, room: int) -> Iterator[str]:
    yield from _format_title(report)
    yield ""
    yield f"Period: {number_format.format_period(report)}"
    yield from _format_overview(report, room)
    yield from _format_models(report, room)
    if number_format.has_platforms(report):
        yield from _format_platforms(report, room)
    yield from _format_tools(report, room)
    yield from _format_skills(report, room)
    yield from _format_activity(report, room)
    yield from _format_conversations(report, room)
    yield from _format_notable(report, room)


def _format_title(report: Report) -> Iterator[str]:
    inner = BOX - 2
    subtitle = make_printable(f"Last {number_format.format_window(report)}", width_limit=inner - 2)
    yield apply_style(f"╔{'═' * inner}╗", "cyan")
    for text, style in (("Hermes Insights", "bold"), (subtitle, "dim")):
        left = (inner - measure_text(text)) // 2
        right = inner - measure_text(text) - left
        yield (
            apply_style("║", "cyan")
            + " " * left
            + apply_style(text, style)
            + " " * right
            + apply_style("║", "cyan")
        )
    yield apply_style(f"╚{'═' * inner}╝", "cyan")


def _format_overview(report: Report, room: int) -> Iterator[str]:
    overview, costs = report["overview"], report["costs"]
    active, average = number_format.format_active_time(report)
    yield from _format_heading("Overview", room)
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
        ("Active time", active),
        ("Avg session", average),
        ("Avg messages", f"{overview['avg_messages_per_session']:.1f}"),
        ("Avg tokens", format_amount(overview["avg_tokens_per_session"])),
        ("Cost", format_price(costs["cost"], costs["cost_status"])),
    ]
    if costs["actual"]:
        pairs.append(("Billed of it", number_format.format_dollars(costs["actual"])))
    for at in range(0, len(pairs), 2):
        yield "   ".join(
            f"{apply_style(f'{label:<15}', 'dim')}{value:>12}" for label, value in pairs[at : at + 2]
        )
    for note in number_format.list_cost_notes(report):
        yield apply_style(f"({note})", "dim")


def _format_models(report: Report, room: int) -> Iterator[str]:
    rows = [
        (
            model["model"],
            format_amount(model["sessions"], 8),
            shorten_number(model["total_tokens"]),
            format_price(model["cost"], model["cost_status"]),
        )
        for model in report["models"]
    ]
    amounts = [model["total_tokens"] for model in report["models"]]
    yield from _format_heading("Models Used", room)
    yield from _format_table(
        ("Model", "Sessions", "Tokens", "Cost"), (8, 8, 11), rows, room, amounts, room > BOX
    )


def _format_platforms(report: Report, room: int) -> Iterator[str]:
    rows = [
        (
            platform["platform"],
            format_amount(platform["sessions"], 8),
            format_amount(platform["messages"], 8),
            shorten_number(platform["total_tokens"]),
            format_price(platform["cost"], platform["cost_status"]),
        )
        for platform in report["platforms"]
    ]
    amounts = [platform["sessions"] for platform in report["platforms"]]
    yield from _format_heading("Platforms", room)
    headings = ("Platform", "Sessions", "Messages", "Tokens", "Cost")
    yield from _format_table(headings, (8, 9, 8, 11), rows, room, amounts, room > BOX)


def _format_tools(report: Report, room: int) -> Iterator[str]:
    tools = report["tools"]
    if not tools:
        return
    yield from _format_heading("Top Tools", room)
    listed = tools[:MOST_TOOLS]
    rows = [(tool["tool"], format_amount(tool["count"], 8), f"{tool['percentage']:.1f}%") for tool in listed]
    yield from _format_table(
        ("Tool", "Calls", "%"), (8, 6), rows, room, [tool["count"] for tool in listed], True
    )
    if len(tools) > MOST_TOOLS:
        yield apply_style(f"... and {format_plural(len(tools) - MOST_TOOLS, 'more tool')}", "dim")


def _format_skills(report: Report, room: int) -> Iterator[str]:
    skills = report["skills"]["top_skills"]
    if not skills:
        return
    yield from _format_heading("Top Skills", room)
    now = clock.now()
    rows = [
        (
            skill["skill"],
            format_amount(skill["view_count"], 7),
            format_amount(skill["manage_count"], 7),
            clock.format_relative(skill["last_used_at"], now),
        )
        for skill in skills[:MOST_SKILLS]
    ]
    yield from _format_table(("Skill", "Viewed", "Edited", "Last used"), (7, 7, 11), rows, room)


def _format_activity(report: Report, room: int) -> Iterator[str]:
    activity = report["activity"]
    yield from _format_heading("Activity", room)
    most = max((day["count"] for day in activity["by_day"]), default=0)
    for day in activity["by_day"]:
        bar = apply_style(draw_bar(day["count"], most, DAY_BAR), "cyan")
        yield f"{day['day']}  {bar} {format_number(day['count'])}"
    yield ""
    for row in draw_histogram([hour["count"] for hour in activity["by_hour"]], HOUR_ROWS):
        yield apply_style(row, "cyan")
    yield apply_style(f"{'12AM':<12}{'6AM':<12}{'12PM':<12}{'6PM':<12}", "dim")
    yield ""
    peaks = "Peak hours: "
    for peak in number_format.list_peak_hours(report):
        if len(peaks) + len(peak) <= room:
            peaks += f"{peak}, "
    yield peaks.rstrip(", ")
    yield f"Active days: {format_number(activity['active_days'])}"
    if activity["max_streak"] > 1:
        yield f"Best streak: {activity['max_streak']} days"


def _format_conversations(report: Report, room: int) -> Iterator[str]:
    costliest = report["conversations"]["costliest"]
    if not costliest:
        return
    yield from _format_heading("Costliest Conversations", room)
    rows = [
        (
            conversation["name"] or conversation["id"],
            format_amount(conversation["sessions"], 8),
            format_price(conversation["cost"], conversation["cost_status"]),
            format_price(conversation["cost_in_all"], conversation["cost_status_in_all"]),
        )
        for conversation in costliest
    ]
    yield from _format_table(("Conversation", "Sessions", "Cost", "In all"), (8, 11, 11), rows, room)


def _format_notable(report: Report, room: int) -> Iterator[str]:
    if not report["top_sessions"]:
        return
    yield from _format_heading("Notable Sessions", room)
    widest = max(len(entry["value"]) for entry in report["top_sessions"])
    for entry in report["top_sessions"]:
        line = f"{entry['label']:<15}  {entry['value']:<{widest}}  {entry['date']}  "
        line += make_printable(entry["session_id"], width_limit=room - len(line))
        left = room - measure_text(line) - 2
        if entry["title"] and left > DAY_BAR:
            line += "  " + apply_style(make_printable(entry["title"], width_limit=left), "dim")
        yield line


def _format_heading(text: str, room: int) -> Iterator[str]:
    yield ""
    yield apply_style(text, "bold")
    yield apply_style("─" * room, "dim")


def _format_table(
    headings: Sequence[str],
    widths: Sequence[int],
    rows: Sequence[tuple[str, ...]],
    room: int,
    amounts: Sequence[float] = (),
    drawn: bool = False,
) -> Iterator[str]:
    """Yield the lines of a table of the report. Each row has a name, right-aligned numbers and, if `drawn` is
    set, a bar. The column of the names gets the width that the other columns leave."""
    left = room - sum(widths) - len(widths) - (DAY_BAR + 2 if drawn else 0)
    names = [make_printable(row[0]) for row in rows]
    width = min(left, max(measure_text(text) for text in (headings[0], *names)))
    length = min(LONGEST_BAR, room - width - sum(widths) - len(widths) - 2)
    most = max(amounts, default=0)
    yield apply_style(f"{_pad(headings[0], width)} {_format_numbers(headings[1:], widths)}", "dim")
    for at, row in enumerate(rows):
        line = f"{_pad(names[at], width)} {_format_numbers(row[1:], widths)}"
        yield f"{line}  {apply_style(draw_bar(amounts[at], most, length), 'cyan')}" if drawn else line


def _pad(name: str, width: int) -> str:
    return fit_text(name, Column("", width, width - 1 if measure_text(name) > width else 0))


def _format_numbers(cells: Iterable[str], widths: Iterable[int]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def draw_bar(amount: float, most: float, width: int) -> str:
    """Return a bar whose length is proportional to the amount, accurate to an eighth of a column. The bar of
    a non-zero amount has at least one full block."""
    if not amount or not most:
        return ""
    eighths = max(8, round(8 * width * amount / most))
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def draw_histogram(amounts: Sequence[int], rows: int) -> Iterator[str]:
    """Yield the rows of a histogram, top row first, two characters per column. A non-zero amount is always
    visible."""
    most = max(amounts, default=0)
    heights = [max(1, round(8 * rows * value / most)) if value else 0 for value in amounts]
    for row in reversed(range(rows)):
        yield "".join(LEVELS[min(8, max(0, height - 8 * row))] * 2 for height in heights)
