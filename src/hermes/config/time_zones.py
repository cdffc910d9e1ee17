"""Time zones by their IANA name: the one check, for settings and for whoever computes with a zone."""

from __future__ import annotations

from reprlib import repr as shorten
from typing import TYPE_CHECKING

from hermes import errors

if TYPE_CHECKING:
    from datetime import tzinfo
    from zoneinfo import ZoneInfo

EXPECTED = "a time zone such as Europe/Berlin"
SETTING = "session_reset.timezone"


class UnknownZone(ValueError):
    """There is no such time zone. The text is a hint: the end of a sentence, or empty."""


def find_zone(name: str) -> ZoneInfo:
    """The time zone of that name, else UnknownZone."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):  # OSError: a folder of zones is no zone
        raise UnknownZone(_make_hint(name)) from None


def load_zone(name: str | None, setting: str = SETTING) -> tzinfo | None:
    """The time zone of that name, else BadConfig; None is the machine's own, as `datetime` has it."""
    if name is None:
        return None
    try:
        return find_zone(name)
    except UnknownZone as problem:
        raise errors.BadConfig(f"{setting} must be {EXPECTED}, not {shorten(name)}{problem}") from None


def _make_hint(unknown: object) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    names = sorted(available_timezones())
    if not names:
        return (
            "; this machine has no time zone database: install the package tzdata, or leave the setting out"
        )
    zones = {name.rpartition("/")[2].casefold(): name for name in names}  # people think of the city
    zones |= {name.casefold(): name for name in names}
    close = get_close_matches(str(unknown).strip().casefold(), zones, n=1, cutoff=0.8)
    return f"; is {zones[close[0]]} meant?" if close else ""
