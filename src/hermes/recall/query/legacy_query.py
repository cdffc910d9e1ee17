"""The query sanitiser of the documentation, for callers who look for `SessionDB._sanitize_fts5_query`.

Our own search parses a query (`hermes.recall.query.operators`) and never uses this. It makes a string that FTS5 mostly
accepts and loses meaning on the way; its steps and their order are the contract, also where they are odd.
"""

from __future__ import annotations

import re

from hermes.store.arguments import required_text

_PHRASE = re.compile(r'"[^"]*"')
_HELD = "\0"  # stands for a phrase while the rest is changed; NUL has no meaning in a query
_SPECIAL = re.compile(r'[+{}()"^]')
_STARS = re.compile(r"\*+")
_LONE_STAR = re.compile(r"(?:^|(?<=\s))\*")
_LEADING = re.compile(r"^(?:AND|OR|NOT)\b\s*", re.IGNORECASE)
_TRAILING = re.compile(r"(?:^|\s+)(?:AND|OR|NOT)$", re.IGNORECASE)
_COMPOUND = re.compile(r"[^\W_]+(?:[._-]+[^\W_]+)+")


def sanitize_fts5_query(query: str) -> str:
    """A query for FTS5 as documented: `chat-send` becomes `"chat-send"`, `hello AND` becomes `hello`."""
    query = required_text("query", query).replace(_HELD, "")
    phrases = iter(_PHRASE.findall(query))
    query = _SPECIAL.sub(" ", _PHRASE.sub(_HELD, query))
    query = _LONE_STAR.sub("", _STARS.sub("*", query))
    query = _LEADING.sub("", query.strip(), count=1)
    query = _TRAILING.sub("", query.strip(), count=1)
    query = _COMPOUND.sub(r'"\g<0>"', query)
    return re.sub(_HELD, lambda _: next(phrases), query).strip()
