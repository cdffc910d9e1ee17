"""WhatsApp's two ids of a person, telephone number and LID, unified where a mapping file is known."""

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
    aliases: set[str] = set()
    waiting = [first] if first else []
    while waiting:
        name = waiting.pop(0)
        if name in aliases:
            continue
        aliases.add(name)
        if _SAFE.fullmatch(name):  # it becomes part of a file's name
            mapped = (_read_mapping(where / f"lid-mapping-{name}{end}.json") for end in ("", "_reverse"))
            waiting += [name for name in mapped if name]
    return aliases


def canonical_whatsapp_identifier(identifier: str, folder: Path | None = None) -> str:
    """The one name of a person: of all that are known the shortest, and of those the first."""
    aliases = expand_whatsapp_aliases(identifier, folder)
    return min(aliases, key=lambda name: (len(name), name)) if aliases else ""


def _read_mapping(file: Path) -> str:
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return normalize_whatsapp_identifier(data) if isinstance(data, str) and _SAFE.fullmatch(data) else ""
