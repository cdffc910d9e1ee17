"""WhatsApp's two names for one person, a telephone number and a LID, brought together where a mapping is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hermes import home

_SAFE = re.compile(r"[A-Za-z0-9@.+-]+")


def normalize_whatsapp_identifier(identifier: str) -> str:
    """Without the leading plus, the device and the server: `+49 170:3@s.whatsapp.net` is `49 170`."""
    return identifier.strip().replace("+", "", 1).split(":", 1)[0].split("@", 1)[0]


def expand_whatsapp_aliases(identifier: str, folder: Path | None = None) -> set[str]:
    """Every name under which the same person is known; empty for an empty one."""
    where = folder or home.get_hermes_home() / "whatsapp" / "session"
    first = normalize_whatsapp_identifier(identifier)
    known: set[str] = set()
    waiting = [first] if first else []
    while waiting:
        name = waiting.pop(0)
        if name in known:
            continue
        known.add(name)
        if _SAFE.fullmatch(name):  # it becomes part of a file's name
            found = (_mapped(where / f"lid-mapping-{name}{end}.json") for end in ("", "_reverse"))
            waiting += [one for one in found if one]
    return known


def canonical_whatsapp_identifier(identifier: str, folder: Path | None = None) -> str:
    """The one name of a person: of all that are known the shortest, and of those the first."""
    known = expand_whatsapp_aliases(identifier, folder)
    return min(known, key=lambda name: (len(name), name)) if known else ""


def _mapped(file: Path) -> str:
    try:
        told = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_identifier(told) if isinstance(told, str) and _SAFE.fullmatch(told) else ""
