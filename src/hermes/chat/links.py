"""Links in an answer: the screen shows where a link leads, unless its text says so already.

A terminal hides the target of a link behind its text, so that `[bank.example](https://other.example)` would look like
the bank. The target is shown in ASCII: a host in another script appears as its `xn--` form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.markdown import Markdown

LONGEST_HOST, LONGEST_REST = 100, 100
_PARTS = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*:)?(?P<slashes>//)?(?P<user>[^/?#]*@)?(?P<host>[^/?#]*)(?P<rest>.*)",
    re.S,
)


def make_markdown(text: str) -> Markdown:
    """Markdown for a terminal whose links show their targets."""
    from rich.markdown import Markdown

    made = Markdown(text)
    for token in made.parsed:
        if token.children:
            token.children = list(_with_targets(token.children))
    return made


def differs(text: str, target: str) -> bool:
    """Whether a link leads elsewhere than its text says: to another place, or by a user name in the address."""
    here, there = _PARTS.fullmatch(text.strip()), _PARTS.fullmatch(target)
    assert here is not None
    assert there is not None
    if there["user"] and there["slashes"]:
        return True
    schemes = ("http:", "https:", "mailto:") if not here["scheme"] else (here["scheme"].lower(),)
    return (there["scheme"] or "").lower() not in schemes or _place(here) != _place(there)


def show_target(target: str) -> str:
    """A target as it is shown: printable ASCII, without a user name, and never without its host."""
    plain = "".join(char if "!" <= char <= "~" else quote(char, errors="replace") for char in target)
    found = _PARTS.fullmatch(plain)
    assert found is not None
    host = found["host"] if found["slashes"] else f"{found['user'] or ''}{found['host']}"
    if len(host) > LONGEST_HOST:  # what counts in a host is its end
        host = f"…{host[1 - LONGEST_HOST :]}"
    rest = found["rest"] if len(found["rest"]) <= LONGEST_REST else f"{found['rest'][: LONGEST_REST - 1]}…"
    return f"{found['scheme'] or ''}{found['slashes'] or ''}{host}{rest}"


def _place(found: re.Match[str]) -> tuple[str, str]:
    host = f"{found['user'] or ''}{found['host']}"
    return host.lower(), unquote(found["rest"]).rstrip("/")


def _with_targets(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens of a line, with the target behind each link and picture that does not show it."""
    from markdown_it.token import Token

    target: str | None = None
    said = ""
    for token in tokens:
        yield token
        if token.type == "link_open":
            target, said = str(token.attrs.get("href", "")), ""
        elif token.type == "link_close":
            if target is not None and differs(said, target):
                yield Token("text", "", 0, content=f" ({show_target(target)})")
            target = None
        elif token.type == "image" and target is None:
            yield Token("text", "", 0, content=f"({show_target(str(token.attrs.get('src', '')))})")
        else:
            said += " " if token.type == "softbreak" else token.content
