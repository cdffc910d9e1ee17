"""Dates as people write them. Each is read as the time range that it names.

    2w 3d 12h 30min 6mo 1y              from that long ago until now
    today, yesterday, monday            a day; a weekday is the last one, today included
    last monday, 3 days ago             a day before today
    this week, last month, 2 weeks ago  from Monday to Sunday; the whole month or year
    2026, 2026-05, 2026-05-02           with - or /
    May, May 2, 2 May 2025, 5月2日      without a year: the latest that has begun
    2026-05-02T14:30, with Z or +02:00  a minute, or a second

Days begin and end at local midnight, so a day can have 23 or 25 hours. Any other text is not a date.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

__all__ = ["Span", "read_date"]

from hermes.recall.query.named_days import MONTHS


class Span(NamedTuple):
    """A half-open time range: `start` is included and `end` is not. Both are seconds since 1970."""

    start: float
    end: float


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS_AGO = {"today": 0, "yesterday": 1, "今天": 0, "今日": 0, "昨天": 1, "昨日": 1, "오늘": 0, "어제": 1}
HOUR, MINUTE = 3600.0, 60.0

_SHORT = re.compile(r"(\d{1,4}) ?(min|h|d|w|mo|y)")
_AGO = re.compile(r"(\d{1,4}|a|an|one) (minute|hour|day|week|month|year)s? ago")
_RELATIVE = re.compile(r"(this|last|previous) (week|month|year)")
_WEEKDAY = re.compile(rf"(last )?({'|'.join(f'{day[:3]}(?:{day[3:]})?' for day in WEEKDAYS)})")
_NUMBERS = re.compile(r"(\d{4})(?:([-/])(\d{1,2})(?:\2(\d{1,2}))?)?")
_NAME = r"([a-z]{3,9})\.?"
_MONTH_DAY = re.compile(rf"{_NAME}(?: (\d{{1,2}})(?:st|nd|rd|th)?)?(?:,? (\d{{4}}))?")
_DAY_MONTH = re.compile(rf"(\d{{1,2}})(?:st|nd|rd|th|\.)? {_NAME}(?:,? (\d{{4}}))?")
_CHARACTERS = re.compile(r"(?:(\d{4}) ?[年년] ?)?(\d{1,2}) ?[月월](?: ?(\d{1,2}) ?[日号號일])?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[t ]\d\d:\d\d(:\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)")


def read_date(text: str, now: float, zone: tzinfo | None = None) -> Span | None:
    """Return the time range that a text names, or None if the text is not a date. The default time zone is
    the local one."""
    typed = " ".join(text.lower().split())
    calendar = _Calendar(now, zone)
    try:
        if typed in DAYS_AGO:
            return calendar.unit("day", DAYS_AGO[typed])
        for form, meaning in _FORMS:
            if found := form.fullmatch(typed):
                return meaning(calendar, *found.groups())
    except (ValueError, OverflowError, OSError):  # the day does not exist, or is out of range
        pass
    return None


class _Calendar:
    """Calendar arithmetic relative to the current time, in one time zone."""

    def __init__(self, now: float, zone: tzinfo | None) -> None:
        self.now, self._zone = now, zone
        self.today = date(*self._fields(now)[:3])

    def _fields(self, at: float) -> tuple[int, ...]:
        """Return the year, month, day, hour, minute and second of the time `at`."""
        here = (
            time.localtime(at) if self._zone is None else datetime.fromtimestamp(at, self._zone).timetuple()
        )
        return tuple(here)[:6]

    def at(self, day: date, hour: int = 0, minute: int = 0, second: int = 0) -> float:
        if self._zone is None:  # -1: the C library determines daylight saving time
            return time.mktime((day.year, day.month, day.day, hour, minute, second, 0, 0, -1))
        return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=self._zone).timestamp()

    def days(self, first: date, count: int = 1) -> Span:
        return Span(self.at(first), self.at(first + timedelta(count)))

    def month(self, year: int, month: int) -> Span:
        return Span(self.at(date(year, month, 1)), self.at(_add_months(date(year, month, 1), 1)))

    def year(self, year: int) -> Span:
        return Span(self.at(date(year, 1, 1)), self.at(date(year + 1, 1, 1)))

    def since(self, day: date) -> Span:
        """Return the time range from the current time of day on `day` until now."""
        return Span(min(self.now, self.at(day, *self._fields(self.now)[3:])), self.now)

    def unit(self, name: str, back: int) -> Span:
        """Return the time range of the day, week, month or year that is `back` such units before the current one."""
        if name == "day":
            return self.days(self.today - timedelta(back))
        if name == "week":
            return self.days(self.today - timedelta(self.today.weekday() + 7 * back), 7)
        if name == "month":
            first = _add_months(self.today.replace(day=1), -back)
            return self.month(first.year, first.month)
        return self.year(self.today.year - back)


def _add_months(day: date, count: int) -> date:
    """Return the same day in a month `count` months later. If that month is shorter, return its last day."""
    years, month = divmod(day.month - 1 + count, 12)
    first = date(day.year + years, month + 1, 1)
    length = (_start_next_month(first) - first).days
    return first.replace(day=min(day.day, length))


def _start_next_month(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def _read_short(calendar: _Calendar, count: str, unit: str) -> Span:
    number, today = int(count), calendar.today
    if unit in ("h", "min"):
        return Span(calendar.now - number * (HOUR if unit == "h" else MINUTE), calendar.now)
    if unit in ("d", "w"):
        return calendar.since(today - timedelta(number * (7 if unit == "w" else 1)))
    return calendar.since(_add_months(today, -number * (12 if unit == "y" else 1)))


def _read_ago(calendar: _Calendar, count: str, unit: str) -> Span:
    number = int(count) if count.isdecimal() else 1
    if unit in ("hour", "minute"):
        return Span(calendar.now - number * (HOUR if unit == "hour" else MINUTE), calendar.now)
    return calendar.unit(unit, number)


def _read_relative(calendar: _Calendar, which: str, unit: str) -> Span:
    return calendar.unit(unit, int(which != "this"))


def _read_weekday(calendar: _Calendar, last: str | None, name: str) -> Span:
    weekday = next(number for number, day in enumerate(WEEKDAYS) if day.startswith(name))
    back = (calendar.today.weekday() - weekday) % 7
    return calendar.days(calendar.today - timedelta(7 if last and not back else back))


def _read_numbers(
    calendar: _Calendar, year: str, _mark: str | None, month: str | None, day: str | None
) -> Span:
    if month is None:
        return calendar.year(int(year))
    return _make_day_or_month(calendar, year, int(month), day)


def _read_month_day(calendar: _Calendar, name: str, day: str | None, year: str | None) -> Span:
    return _make_day_or_month(calendar, year, _parse_month(name), day)


def _read_day_month(calendar: _Calendar, day: str, name: str, year: str | None) -> Span:
    return _make_day_or_month(calendar, year, _parse_month(name), day)


def _read_characters(calendar: _Calendar, year: str | None, month: str, day: str | None) -> Span:
    return _make_day_or_month(calendar, year, int(month), day)


def _parse_month(name: str) -> int:
    if name not in MONTHS:
        raise ValueError(f"{name} is not a month")
    return MONTHS[name]


def _make_day_or_month(calendar: _Calendar, year: str | None, month: int, day: str | None) -> Span:
    def named(in_year: int) -> Span:
        return calendar.days(date(in_year, month, int(day))) if day else calendar.month(in_year, month)

    if year is not None:
        return named(int(year))
    # 29 February exists only in some years, up to eight years apart.
    for candidate in range(calendar.today.year, calendar.today.year - 9, -1):
        try:
            found = named(candidate)
        except ValueError:
            continue
        if found.start <= calendar.now:
            return found
    raise ValueError("no such day")


def _read_moment(calendar: _Calendar, typed: str, seconds: str | None) -> Span:
    found = datetime.fromisoformat(typed.upper())
    if found.tzinfo is None:
        start = calendar.at(found.date(), found.hour, found.minute, found.second) + found.microsecond / 1e6
    else:
        start = found.timestamp()
    return Span(start, start + (1.0 if seconds else MINUTE))


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Span]], ...] = (
    (_SHORT, _read_short),
    (_AGO, _read_ago),
    (_RELATIVE, _read_relative),
    (_WEEKDAY, _read_weekday),
    (_NUMBERS, _read_numbers),
    (_CHARACTERS, _read_characters),
    (_MONTH_DAY, _read_month_day),
    (_DAY_MONTH, _read_day_month),
    (_TIME, _read_moment),
)
