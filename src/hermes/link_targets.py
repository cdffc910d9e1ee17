"""Compare the text of a link with its target, and format the target so that its host is clear."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

LONGEST_HOST, LONGEST_REST = 100, 100
_PARTS = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*:)?(?P<slashes>//)?(?P<user>[^/?#]*@)?(?P<host>[^/?#]*)(?P<rest>.*)",
    re.S,
)
_HOST = re.compile(r"(?:[\w-]{1,63}\.){1,10}[^\W\d_][\w-]{1,62}|\d{1,3}(?:\.\d{1,3}){3}")


def is_misleading(text: str, target: str) -> bool:
    """Return whether the text of a link does not match its target, or the target contains a user name."""
    here, there = _PARTS.fullmatch(text.strip()), _PARTS.fullmatch(target)
    assert here is not None
    assert there is not None
    if there["user"] and there["slashes"]:
        return True
    schemes = ("http:", "https:", "mailto:") if not here["scheme"] else (here["scheme"].lower(),)
    return (there["scheme"] or "").lower() not in schemes or _normalize_place(here) != _normalize_place(there)


def names_another_host(text: str, target: str) -> bool:
    """Return whether the text of a link contains an address that is not its target: `bank.example` on a link to
    `https://evil.example`."""
    hosts = [host.lower() for host in _HOST.findall(text)]
    if not hosts or not re.search(r"\s", text.strip()):
        return bool(hosts) and is_misleading(text, target)
    there = _PARTS.fullmatch(target)
    assert there is not None
    place = there["host"].lower().partition(":")[0].removeprefix("www.")
    return any(host.removeprefix("www.") != place for host in hosts)


def show_target(target: str, *, is_whole: bool = False) -> str:
    """Format a target: printable ASCII, without a user name, and always with its host. Without `is_whole`, a long
    target is shortened."""
    plain = "".join(char if "!" <= char <= "~" else quote(char, errors="replace") for char in target)
    found = _PARTS.fullmatch(plain)
    assert found is not None
    host = found["host"] if found["slashes"] else f"{found['user'] or ''}{found['host']}"
    rest = found["rest"]
    if not is_whole and len(host) > LONGEST_HOST:  # the end of a host name identifies it
        host = f"…{host[1 - LONGEST_HOST :]}"
    if not is_whole and len(rest) > LONGEST_REST:
        rest = f"{rest[: LONGEST_REST - 1]}…"
    return f"{found['scheme'] or ''}{found['slashes'] or ''}{host}{rest}"


def _normalize_place(found: re.Match[str]) -> tuple[str, str]:
    host = f"{found['user'] or ''}{found['host']}"
    return host.lower(), unquote(found["rest"]).rstrip("/")
