"""Days and months named in a question, as time ranges.

A date without a year can mean any year since the first session of the store. The caller passes this range of
years.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import NamedTuple

from hermes import clock

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("january jan", "february feb", "march mar", "april apr", "may", "june jun"),
            *("july jul", "august aug", "september sept sep", "october oct", "november nov", "december dec"),
        ),
        start=1,
    )
    for name in names.split()
}
_NAME = "|".join(sorted(MONTHS, key=len, reverse=True))
_YEAR = r"(?:,?\s*(?P<year>\d{4})\b)?"
DAY_FORMS = [
    re.compile(rf"\b(?P<month>{_NAME})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b{_YEAR}"),
    re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<month>{_NAME})\b\.?{_YEAR}"),
    re.compile(r"(?:(?P<year>\d{4})\s*年\s*)?(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号號]"),
    re.compile(r"(?<!\d)(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)"),
]
# "May" and "march" are also ordinary words. A month counts only after a preposition or together with a year.
MONTH_FORMS = [
    re.compile(
        rf"\b(?:[Ii]n|[Dd]uring|[Ss]ince|[Ll]ast|[Tt]his|[Oo]f|[Ee]arly|[Ll]ate|[Mm]id)[\s-]+(?P<month>(?i:{_NAME}))\b"
        rf"(?!\.?\s+\d{{1,2}}\b(?!\d))(?:\s+(?P<year>\d{{4}})\b)?"
    ),
    re.compile(rf"\b(?P<month>(?i:{_NAME}))\s+(?P<year>\d{{4}})\b"),
    re.compile(r"(?:(?P<year>\d{4})\s*年\s*)?(?<!\d)(?P<month>1[0-2]|[1-9])\s*月(?!\s*\d{1,2}\s*[日号號])"),
    re.compile(r"(?<![\d-])(?P<year>\d{4})-(?P<month>\d{1,2})(?![\d-])"),
]
DAYS_AGO = {"today": 0, "yesterday": 1, "the day before yesterday": 2, "今天": 0, "昨天": 1, "前天": 2}
_DAYS_AGO = re.compile(r"\bthe day before yesterday\b|\byesterday\b|\btoday\b|今天|昨天|前天")


class Stretch(NamedTuple):
    """A day, or a whole month if `day` is 0. If `year` is None, any year is meant."""

    year: int | None
    month: int
    day: int

    def within(self, first_year: int, last_year: int) -> list[tuple[float, float]]:
        """Return the start and the end of this day or month, in local time. A date without a year yields one
        range per year from `first_year` to `last_year`."""
        years = range(first_year, last_year + 1) if self.year is None else (self.year,)
        found = []
        for year in years:
            try:
                first = date(year, self.month, self.day or 1)
                after = (
                    first + timedelta(days=1)
                    if self.day
                    else date(year + self.month // 12, self.month % 12 + 1, 1)
                )
                found.append((_get_midnight(first), _get_midnight(after)))
            except (ValueError, OverflowError, OSError):  # the day does not exist in this year
                continue
        return found

    def __str__(self) -> str:
        year = "" if self.year is None else f"{self.year:04}-"
        return f"{year}{self.month:02}-{self.day:02}" if self.day else f"{year}{self.month:02}"


def find_days(folded: str) -> tuple[Stretch, ...]:
    found = [stretch for form in DAY_FORMS for match in form.finditer(folded) if (stretch := _read(match))]
    for match in _DAYS_AGO.finditer(folded):
        day = datetime.fromtimestamp(clock.now()).astimezone().date() - timedelta(days=DAYS_AGO[match[0]])
        found.append(Stretch(day.year, day.month, day.day))
    return tuple(dict.fromkeys(found))


def find_months(text: str) -> tuple[Stretch, ...]:
    """Return the months that a question names without a day. The word "may" by itself does not count as a month."""
    found = [stretch for form in MONTH_FORMS for match in form.finditer(text) if (stretch := _read(match))]
    return tuple(dict.fromkeys(found))


def get_year(at: float) -> int:
    return datetime.fromtimestamp(at).astimezone().year


def _read(match: re.Match[str]) -> Stretch | None:
    named = match.groupdict()
    month = named["month"].lower()
    number = MONTHS[month] if month in MONTHS else int(month)
    day = int(named.get("day") or 0)
    if not 1 <= number <= 12 or day > 31 or (named.get("day") and not day):
        return None
    return Stretch(int(named["year"]) if named["year"] else None, number, day)


def _get_midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day).astimezone().timestamp()
