"""Formats of the numbers in the insights report, shared by its outputs in the terminal, on platforms and as a
page."""

from __future__ import annotations

import time
from typing import Any

from hermes import clock

CENT = 0.01


def format_number(number: float) -> str:
    return f"{number:,.0f}"


def shorten_number(number: float) -> str:
    """Format a number in short form: `950`, `12.3K`, `4.5M`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size * 0.9995:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def format_amount(number: float, width: int = 12) -> str:
    """Format a number with all digits if they fit into `width` characters, otherwise in short form."""
    full = format_number(number)
    return full if len(full) <= width else shorten_number(number)


def format_plural(number: float, noun: str) -> str:
    return f"{format_number(number)} {noun}{'' if number == 1 else 's'}"


def format_active_time(report: dict[str, Any]) -> tuple[str, str]:
    """Return the total active time and the average per session: `~3h 5m`, `~12m`."""
    active = report["active_time"]
    return f"~{format_duration(active['seconds'])}", f"~{format_duration(active['avg_session_seconds'])}"


def format_duration(seconds: float) -> str:
    """Format a duration: `45s`, `12m`, `3h 5m`, `2.1d`."""
    if seconds < clock.MINUTE:
        return f"{seconds:.0f}s" if seconds < 59.5 else "1m"
    minutes = round(seconds / clock.MINUTE)
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h {minutes % 60}m" if minutes % 60 else f"{minutes // 60}h"
    return f"{seconds / clock.DAY:.1f}d"


def format_dollars(cost: float) -> str:
    if 0 < cost < CENT:
        return f"<${CENT}"
    return f"${cost:,.2f}" if cost < 100_000 else f"${shorten_number(cost)}"


def format_price(cost: float | None, status: str) -> str:
    """Format a cost of the report. `+` marks a sum of which only a part is known, and `~` marks an estimate."""
    if cost is None:
        return "unknown"
    if status in ("included", "none"):
        return "included" if status == "included" else "—"
    mark = "~" if status == "estimated" and cost >= CENT else ""
    return f"{mark}{format_dollars(cost)}{'+' if status == 'partial' else ''}"


def format_hour(number: int) -> str:
    """Format an hour: `12AM`, `3PM`."""
    return f"{number % 12 or 12}{'AM' if number < 12 else 'PM'}"


def list_peak_hours(report: dict[str, Any], most: int = 5) -> list[str]:
    """Return the hours of the day in which most sessions started, each with their number, such as `3PM (12)`.
    At most `most` hours are returned."""
    counts = [hour for hour in report["activity"]["by_hour"] if hour["count"]]
    counts.sort(key=lambda hour: -hour["count"])
    return [f"{format_hour(hour['hour'])} ({format_number(hour['count'])})" for hour in counts[:most]]


def format_date(at: float) -> str:
    """Format a local date: `May 02, 2026`."""
    try:
        return time.strftime("%b %d, %Y", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"


def format_period(report: dict[str, Any]) -> str:
    overview = report["overview"]
    first, last = format_date(overview["date_range_start"]), format_date(overview["date_range_end"])
    return first if first == last else f"{first} – {last}"


def format_source(report: dict[str, Any]) -> str:
    """Return which source a report is limited to, such as ` (source: cli)`. Return an empty string if all
    sources are included."""
    source = report["source_filter"]
    if not source:
        return ""
    return f" (source: {source if isinstance(source, str) else ', '.join(source)})"


def format_window(report: dict[str, Any]) -> str:
    """Return the period and source of a report, such as `30 days (source: cli)`."""
    return f"{format_plural(report['days'], 'day')}{format_source(report)}"


def format_nothing(report: dict[str, Any]) -> str:
    """Return the sentence that is shown if no sessions started in the period of the report."""
    return f"No sessions found in the last {format_window(report)}."


def list_cost_notes(report: dict[str, Any]) -> list[str]:
    """Return notes on sessions whose costs are not in the total of the report: unknown costs, and use that
    costs nothing extra."""
    costs, notes = report["costs"], []
    if costs["unknown_sessions"]:
        notes.append(f"cost unknown for {format_plural(costs['unknown_sessions'], 'session')}")
    if costs["included_sessions"]:
        notes.append(
            f"subscription or local, no cost: {format_plural(costs['included_sessions'], 'session')}"
        )
    return notes


def has_platforms(report: dict[str, Any]) -> bool:
    """Return whether the report should show the figures by platform. They are not shown if the terminal is the
    only source."""
    return [row["platform"] for row in report["platforms"]] != ["cli"]
