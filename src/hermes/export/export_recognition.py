"""Recognise a file that this program exported, by the beginning of its content.

HTML has a `generator`, Markdown has a comment below its first heading, and a trace has a field in its first
event. JSONL has no such mark. It is recognised by its first fields, which are those of a session, in the
order in which exports write them. A truncated file is recognised by what remains of its beginning.
"""

from __future__ import annotations

import json
import re
from typing import Any

HEAD_BYTES = 64 * 1024
"""Every mark is within the first `HEAD_BYTES` bytes of a file."""

GENERATOR = "Hermes Sessions"
HTML_MARK = f'<meta name="generator" content="{GENERATOR}">'
MARKDOWN_MARK = f"<!-- Exported by {GENERATOR} -->"
TRACE_MARK = {"generator": GENERATOR}

SESSION_FIELDS = ("id", "source", "user_id", "model")
"""The first columns of a session. Only these are checked, because later columns can have any length."""

_SPACE = re.compile(r"\s*")


def is_own_output(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an export or a report of this program."""
    text = head[:HEAD_BYTES].decode("utf-8", "ignore")
    return _is_page(text) or _is_document(text) or _is_session_or_event(text)


CONTAINERS = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"SQLite format 3\0", "an SQLite database, but not a store"),
)
"""The first bytes of files that a person may mistake for an export."""


def describe_unimportable(head: bytes) -> str | None:
    """Describe a file that begins with `head`, if sessions cannot be imported from it. Return None if it may
    contain sessions."""
    for mark, description in CONTAINERS:
        if head.startswith(mark):
            return description
    text = head[:HEAD_BYTES].decode("utf-8-sig", "ignore").lstrip()
    own = "an export of Hermes Sessions as" if is_own_output(text.encode()) else ""
    if re.match(r"<(!doctype\s+)?html\b", text, re.IGNORECASE):
        return f"{own} an HTML page" if own else "an HTML page"
    if _is_document(text):
        return f"{own} a Markdown document"
    if text.startswith("#"):
        return "a Markdown document"
    if re.match(r"(\{\s*\n\s*\"|\[\s*\n\s*[\[{\"])", text):
        return "a JSON document of several lines, such as one that /save writes"
    if "parentUuid" in _read_leading_fields(text):
        return f"{own} a trace" if own else "a trace of Claude Code"
    return None


def _is_page(text: str) -> bool:
    return text.startswith("<!doctype html>") and HTML_MARK in text.partition("<title>")[0]


def _is_document(text: str) -> bool:
    heading, _, rest = text.partition("\n")
    return heading.startswith("# ") and rest.partition("\n")[0].rstrip() == MARKDOWN_MARK


def _is_session_or_event(text: str) -> bool:
    fields = _read_leading_fields(text)
    if tuple(fields)[: len(SESSION_FIELDS)] == SESSION_FIELDS:
        return isinstance(fields["id"], str) and isinstance(fields["source"], str)
    return "parentUuid" in fields and fields.get("generator") == GENERATOR


def _read_leading_fields(text: str) -> dict[str, Any]:
    """Return the fields at the beginning of the JSON object in `text`. The text may be truncated; a field that
    is not complete is left out."""
    fields: dict[str, Any] = {}
    if not text.startswith("{"):
        return fields
    decode, at = json.JSONDecoder().raw_decode, 0
    try:
        while text[at] in "{,":
            name, at = decode(text, _skip_space(text, at + 1))
            at = _skip_space(text, at)
            if not isinstance(name, str) or text[at] != ":":
                break
            fields[name], at = decode(text, _skip_space(text, at + 1))
            at = _skip_space(text, at)
    except (ValueError, IndexError, RecursionError):
        pass  # truncated, or not JSON
    return fields


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
