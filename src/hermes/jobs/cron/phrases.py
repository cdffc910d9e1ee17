"""Parses schedules as people type them: `@daily`, `every 2h`, `weekdays at 9:30`, `tomorrow at 9`, or the five fields
of a cron expression.

`parse_phrase` returns the schedule in the form that is written to job files (see `schedule`). A phrase with a time but
no date means the next time of day that fits.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo

from hermes.jobs.cron.schedule import UNITS, BadSchedule, Schedule, read_schedule
from hermes.jobs.cron.wall_time import to_instant, to_wall

MACROS = {
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "midnight": "0 0 * * *",
    "weekly": "0 0 * * 0",
    "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *",
    "annually": "0 0 1 1 *",
}
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY_NAMES = {name[:length]: number for number, name in enumerate(DAYS, 1) for length in (3, len(name))} | {
    **{f"{name}s": number for number, name in enumerate(DAYS, 1)},
    "tues": 2,
    "thur": 4,
    "thurs": 4,
}
GROUPS = {"day": "*", "days": "*", "weekday": "1-5", "weekdays": "1-5", "weekend": "6,0", "weekends": "6,0"}
TIMES = {"noon": time(12), "midnight": time(0)}
UNIT_NAMES = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}
CLOCK = re.compile(r"(\d{1,2})(?:[:.](\d{2}))? ?(am|pm|a\.m\.|p\.m\.)?( o'clock)?")
AMOUNT = re.compile(r"(\d{1,9}) ?([a-z]+)")
DATE = re.compile(r"(\d{4}-\d{1,2}-\d{1,2})(?:(?:t| at | )(.+))?")
FARTHEST_S = 3653 * UNITS["d"]
HINT = 'try "0 9 * * 1-5", "@daily", "every 2h", "weekdays at 9" or "tomorrow at 9"'


def parse_phrase(text: str, zone: tzinfo, now: float) -> Schedule:
    """Return the schedule that a person typed. Its `text` is the form that is written to job files. Raise `BadSchedule`
    if the phrase is not understood, or if its only time is in the past or too far in the future."""
    phrase = " ".join(text.lower().replace(",", " , ").split()) if "*" not in text else " ".join(text.split())
    if not phrase:
        raise BadSchedule(f"the schedule is empty; {HINT}")
    if phrase.startswith("@") or phrase in MACROS:
        return read_schedule(_find_macro(phrase), zone, now)
    if len(text.split()) == 5 and re.match(r"[\d*]", text.strip()) and not re.search(r"\b(at|in)\b", phrase):
        return read_schedule(text, zone, now)
    repeated = _parse_repeated(phrase)
    if repeated is not None:
        return read_schedule(repeated, zone, now)
    at = _parse_one_time(phrase, zone, now)
    if at is None:
        if re.fullmatch(r"[\d*/,\- a-zA-Z#]+", text) and re.match(r"[\d*]+(\s+[\d*/,\-]+){3,}", text.strip()):
            return read_schedule(text, zone, now)  # its error says what is wrong with the fields
        raise BadSchedule(f"the schedule {text[:80]!r} is not understood; {HINT}")
    if at <= now:
        raise BadSchedule(f"{text[:80]!r} is in the past")
    if at > now + FARTHEST_S:
        raise BadSchedule(f"{text[:80]!r} is more than ten years from now")
    return read_schedule(datetime.fromtimestamp(at, UTC).astimezone(zone).isoformat(), zone, now)


def _find_macro(phrase: str) -> str:
    name = phrase.removeprefix("@")
    if name == "reboot":
        raise BadSchedule("@reboot is not a time; start the command from the system's own cron")
    if name not in MACROS:
        raise BadSchedule(
            f"there is no schedule {phrase[:40]!r}; {', '.join(f'@{known}' for known in MACROS)}"
        )
    return MACROS[name]


# ---------------------------------------------------------------- repeated


def _parse_repeated(phrase: str) -> str | None:
    """Return the interval or the cron expression for a phrase that names repeated times. None if the phrase names no
    repeated times."""
    has_every = phrase.startswith("every ")
    rest = phrase.removeprefix("every ").strip()
    if rest.startswith("daily"):
        has_every, rest = True, rest.replace("daily", "day", 1)
    if has_every:
        if rest in UNIT_NAMES and UNIT_NAMES[rest] in "smhdw" and " " not in rest and len(rest) > 1:
            return f"every 1{UNIT_NAMES[rest]}"
        if (amount := AMOUNT.fullmatch(rest)) and amount[2] in UNIT_NAMES:
            return f"every {int(amount[1])}{UNIT_NAMES[amount[2]]}"
    days, at, times = rest.partition(" at ")
    fields = _parse_days(days)
    if fields is None or not (has_every or days in GROUPS or days.endswith("s")):
        return None
    if not at:
        raise BadSchedule(f"at which time? Say for example {phrase[:60] + ' at 9'!r}")
    return _make_fields(fields, times)


def _parse_days(text: str) -> str | None:
    """Return the field of a cron expression for the days of the week that a text names. None if the text names no
    days."""
    if text in GROUPS:
        return GROUPS[text]
    names = [name for name in re.split(r" , and | , | and ", text) if name]
    if not names or any(name not in DAY_NAMES for name in names):
        return None
    return ",".join(str(number % 7) for number in sorted({DAY_NAMES[name] for name in names}))


def _make_fields(days: str, times: str) -> str:
    named = [_parse_clock(part) for part in re.split(r" , and | , | and ", times)]
    known = [moment for moment in named if moment is not None]
    if len(known) < len(named):
        raise BadSchedule(f"{times[:60]!r} is not a time of the day; say 9, 9:30, 6pm or noon")
    if len({moment.minute for moment in known}) > 1 and len({moment.hour for moment in known}) > 1:
        raise BadSchedule("these times do not fit into one cron expression; make one job for each")
    minutes = ",".join(str(minute) for minute in sorted({moment.minute for moment in known}))
    hours = ",".join(str(hour) for hour in sorted({moment.hour for moment in known}))
    return f"{minutes} {hours} * * {days}"


# ---------------------------------------------------------------- one time


def _parse_one_time(phrase: str, zone: tzinfo, now: float) -> int | None:
    if phrase.startswith("in "):
        span = _parse_span(phrase.removeprefix("in "))
        return None if span is None else int(now + span)
    if match := DATE.fullmatch(phrase):
        return _parse_date(match[1], match[2], zone)
    wall = to_wall(now, zone)
    day, _, hour = phrase.rpartition(" at ") if " at " in phrase else ("", "", phrase.removeprefix("at "))
    if not day and " " in phrase and phrase.split(" ", 1)[0] in (*DAY_NAMES, "today", "tomorrow"):
        day, hour = phrase.split(" ", 1)
    moment = _parse_clock(hour)
    if moment is None:
        return None
    if not day or day == "today":
        at = to_instant(datetime.combine(wall.date(), moment), zone)
        if at > now or day:
            return at
        return to_instant(datetime.combine(wall.date() + timedelta(days=1), moment), zone)
    if day == "tomorrow":
        return to_instant(datetime.combine(wall.date() + timedelta(days=1), moment), zone)
    if (named := day.removeprefix("next ").removeprefix("on ")) in DAY_NAMES:
        ahead = (DAY_NAMES[named] - wall.isoweekday()) % 7
        at = to_instant(datetime.combine(wall.date() + timedelta(days=ahead), moment), zone)
        return at if at > now else to_instant(datetime.combine(wall.date() + timedelta(days=7), moment), zone)
    return None


def _parse_date(day: str, hour: str | None, zone: tzinfo) -> int | None:
    if hour is None:
        raise BadSchedule(f"at which time? Say for example {day + ' 09:00'!r}")
    try:
        parts = [int(part) for part in day.split("-")]
        date = datetime(parts[0], parts[1], parts[2])  # noqa: DTZ001  a wall time
    except ValueError:
        raise BadSchedule(f"there is no day {day}") from None
    moment = _parse_clock(hour)
    if moment is not None:
        return to_instant(datetime.combine(date.date(), moment), zone)
    try:
        at = datetime.fromisoformat(f"{date.date()}T{hour.upper()}")
    except ValueError:
        return None
    return int(at.timestamp()) if at.tzinfo else to_instant(at, zone)


def _parse_span(text: str) -> int | None:
    """Return the length in seconds of a time span such as `20 minutes` or `1h 30m`. None if the text is not a time
    span."""
    parts = re.findall(r"(\d{1,9}) ?([a-z]+)(?: , | and | |(?=\d)|$)", text)
    joined = "".join(f"{count}{unit}" for count, unit in parts)
    if not parts or joined != re.sub(r" and | , | ", "", text):
        return None
    if any(unit not in UNIT_NAMES for _, unit in parts):
        return None
    return sum(int(count) * UNITS[UNIT_NAMES[unit]] for count, unit in parts) or None


def parse_duration(text: str) -> int | None:
    """Return the length in seconds of a duration such as `90s`, `30m` or `1h30m`. None if the text is not a
    duration."""
    return _parse_span(" ".join(text.lower().split()))


def format_duration(seconds: float) -> str:
    """Return a duration in seconds as text that `parse_duration` can parse, such as `1h30m`."""
    rest, parts = round(seconds), []
    for unit in "dhms":
        count, rest = divmod(rest, UNITS[unit])
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def _parse_clock(text: str) -> time | None:
    if text in TIMES:
        return TIMES[text]
    match = CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").replace(".", "")
    if half and not 1 <= hour <= 12:
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None
