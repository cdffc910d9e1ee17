"""Time zones by IANA name. All code that accepts a time zone name checks it here."""

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
    """The time zone does not exist. The text of the error is a hint to append to a sentence; it may be
    empty."""


def find_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name. Raise `UnknownZone` if it does not exist."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):  # OSError: the name is that of a folder of zones
        raise UnknownZone(_make_hint(name)) from None


def load_zone(name: str | None, setting: str = SETTING) -> tzinfo | None:
    """Return the time zone with this name. If the name is None, return None, which stands for the machine's
    zone.

    Raise `BadConfig` if the zone does not exist.
    """
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
    zones = {name.rpartition("/")[2].casefold(): name for name in names}  # people often write only the city
    zones |= {name.casefold(): name for name in names}
    close = get_close_matches(str(unknown).strip().casefold(), zones, n=1, cutoff=0.8)
    return f"; did you mean {zones[close[0]]}?" if close else ""


def find_local_name() -> str:
    """Return the name of the machine's time zone, from `TZ` or the system's settings. `UTC` if it is unknown."""
    import os
    from pathlib import Path

    named = os.environ.get("TZ", "").removeprefix(":").strip()
    candidates = [named] if named else []
    localtime = Path("/etc/localtime")
    if localtime.is_symlink():
        candidates.append(str(localtime.resolve()).partition("zoneinfo/")[2])
    try:
        candidates.append(Path("/etc/timezone").read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        pass
    for name in candidates:
        try:
            find_zone(name)
        except UnknownZone:
            continue
        return name
    return "UTC"
