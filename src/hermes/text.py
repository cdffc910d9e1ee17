"""Conversion of text: input, search and preview, and output to a terminal or a model.

Invariant: `replace_surrogates` returns text that can be encoded as UTF-8 and is otherwise unchanged. NUL,
control characters and unusual line ends are kept. Text is made safe at output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from unicodedata import category, east_asian_width

PREVIEW_SHOWN = 60

REFERENCE = "\0blob:"
"""Prefix of a string that refers to an attachment stored elsewhere. `store.sessions.attachments` inserts it.
"""
LONGEST_URL_HEAD = 256
FILE_NAMES = ("media_type", "mime_type", "mimeType", "format")
INLINE_NAMES = ("inlineData", "inline_data")
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_="
SHORTEST_FILE = 48
"""Minimum number of base64 characters of an embedded file. A shorter string may be a word, even where a
format expects a file."""


# Input


def has_lone_surrogates(text: str) -> bool:
    """Return whether the text contains lone surrogates, which cannot be encoded and which
    `replace_surrogates` replaces."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def replace_surrogates(text: str) -> str:
    """Replace every lone surrogate by U+FFFD. A surrogate pair becomes its character."""
    if text.isascii() or not has_lone_surrogates(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def to_text(value: object) -> str:
    """Return a value that was read from a text column as text. Another program may have stored a value of any
    type. None becomes an empty text."""
    if isinstance(value, str):
        return value
    return "" if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def extract_searchable_text(content: object) -> str:
    """Return the searchable text of a message: all strings of structured content except type tags and
    embedded files.

    `message_content.read_text` reads messages for people and models.
    """
    if content is None:
        return ""
    return replace_surrogates(content if isinstance(content, str) else "\n".join(_iterate_strings(content)))


def extract_tool_call_text(calls: object) -> str:
    """Return the text of tool calls: names of arguments, strings and numbers, including arguments sent as
    JSON."""
    if calls is None:
        return ""
    if isinstance(calls, str):
        decoded = decode_json(calls)
        if decoded is None:
            return replace_surrogates(calls)
        calls = decoded
    return replace_surrogates("\n".join(_iterate_keys_and_values(calls)))


def make_preview(content: object, length: int = PREVIEW_SHOWN) -> str | None:
    """Return the first words of a message on one line, or None if it has no content. The cost does not depend
    on the size of the content."""
    if content is None:
        return None
    fetched = length + 3
    if isinstance(content, str):
        head = content[:fetched]
    else:
        head = ""
        for string in _iterate_strings(content):
            head += f"\n{string[:fetched]}" if head else string[:fetched]
            if len(head) >= fetched:
                break
    line = replace_surrogates(head[:fetched]).replace("\r", " ").replace("\n", " ").strip()
    return line if len(line) <= length else f"{line[:length]}..."


def _iterate_strings(value: object) -> Iterator[str]:
    """Yield the strings in structured content, in document order, except type tags and embedded files. A stack
    replaces recursion, because the nesting depth is not bounded."""
    stack: list[tuple[object, bool]] = [(value, False)]
    while stack:
        value, is_file = stack.pop()
        if isinstance(value, str):
            if not (is_file and _is_encoded(value)) and not _is_embedded(value):
                yield value
        elif isinstance(value, dict):
            fields = [
                (item, is_file_place(value, key, is_file))
                for key, item in value.items()
                if key != "type" or not isinstance(item, str)
            ]
            stack.extend(reversed(fields))
        elif isinstance(value, list | tuple):
            stack.extend((item, False) for item in reversed(value))


def is_file_place(holder: Mapping[Any, object], key: object, inline: bool) -> bool:
    """Return whether `holder[key]` is a place where provider formats put a file.

    Such a place is the string `data` beside a media type (Anthropic, OpenAI, MCP), or Google's inline data:
    an object under `inlineData`, and the string `data` in it (`inline` is true there). A plain-text document
    has a media type too, but is recognised by its `type`, which is `text`, and does not count.
    """
    if isinstance(holder[key], dict):
        return key in INLINE_NAMES
    return (
        key == "data"
        and (inline or not holder.keys().isdisjoint(FILE_NAMES))
        and holder.get("type") != "text"
    )


def get_data_url_head(text: str) -> str:
    """Return the part of a data URL before the data, including the comma. Return an empty text if `text` is
    not a data URL."""
    if not text.startswith("data:"):
        return ""
    head = text[: text.find(",", 0, LONGEST_URL_HEAD) + 1]
    return head if len(head.split()) == 1 and ("/" in head or ";base64," in head) else ""


def _is_embedded(text: str) -> bool:
    """Return whether a text in structured content is a data URL or a reference to an attachment. Ordinary text
    that starts with `data:` is recognised by its spaces."""
    if not text.startswith("data:"):
        return text.startswith(REFERENCE)
    return get_data_url_head(text) != "" or len(text[:LONGEST_URL_HEAD].split()) == 1


def _is_encoded(text: str) -> bool:
    """Return whether a text begins like base64. Checking the whole text would be too slow for a preview."""
    return len(text) >= SHORTEST_FILE and not text[:SHORTEST_FILE].strip(BASE64)


def _iterate_keys_and_values(value: object) -> Iterator[str]:
    """Yield the keys, strings and numbers in tool calls, in document order. Arguments that are JSON text are
    decoded first."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, item in reversed(value.items()):
                decoded = decode_json(item) if key == "arguments" and isinstance(item, str) else None
                stack += [item if decoded is None else decoded, str(key)]
        elif isinstance(value, list | tuple):
            stack.extend(reversed(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)


def decode_json(text: str) -> dict[str, object] | list[object] | None:
    """Decode a JSON object or array. Return None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    import json  # not needed to list or print

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


# Output to a terminal

# `re` compiles and caches these at their first use. Most texts need none of them.
_ESCAPES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"  # strings: OSC, DCS …
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]"  # short escapes
)
_GAPS = "\r\n|[\t\n\v\f\r\x85\u2028\u2029]"
_UNSAFE = "[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_LINE_ENDS = "\r\n|[\v\f\r\x85\u2028\u2029]"
# Control characters, and letters and marks without width. The joiners that some scripts and emoji need are
# not included.
_HIDDEN = (
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSAFE_IN_LINES = "[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"

# These are valid in JSON, but terminals interpret them, and programs that split text into lines split at
# them.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def escape_json(text: str) -> str:
    """Escape characters in a JSON document that control a terminal or that some programs treat as line ends.
    The value that the document encodes does not change."""
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def make_printable(text: str | bytes, *, width_limit: int | None = None) -> str:
    """Return one line that is safe to print: without escape sequences, control characters or changes of
    direction.

    `width_limit` is in terminal columns. A longer text ends in an ellipsis.
    """
    text = to_text(text)
    if width_limit is not None:
        text = text[: 64 * width_limit + 4096]  # more than enough for the visible part
    text = replace_surrogates(text)
    if not text.isprintable():
        text = re.sub(_UNSAFE, "", re.sub(_GAPS, " ", re.sub(_ESCAPES, "", text)))
    return text if width_limit is None else _fit_width(text, width_limit)


def make_readable(text: str | bytes) -> str:
    """Return text of several lines that is safe to print. Tabs are kept, and all line ends become line feeds."""
    text = replace_surrogates(to_text(text))
    if text.isprintable():
        return text
    lines = re.sub(_LINE_ENDS, "\n", re.sub(_ESCAPES, "", text))
    return re.sub(_UNSAFE_IN_LINES, "", lines)


def spell_controls(text: str | bytes) -> str:
    r"""Return text of several lines that is safe to print and complete: control characters are spelled out,
    such as `\x1b`.

    Used for messages of people and models. `make_readable`, in contrast, drops escape sequences and the text
    inside control strings.
    """
    text = replace_surrogates(to_text(text))
    if text.isprintable():
        return text
    return re.sub(_UNSAFE_IN_LINES, _escape, re.sub(_LINE_ENDS, "\n", text))


# Characters that are printable by category but invisible, or that only change the previous character.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def make_visible(text: str) -> str:
    """Return the text with every invisible or reordering character as `⟨U+202E⟩`. Line feeds and tabs are
    kept.

    Used for text that a person is asked to approve. It is stricter than `reveal`, and its output cannot be
    confused with typed text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or (char.isprintable() and not _UNSEEN.match(char)) else f"⟨U+{ord(char):04X}⟩"
        for char in text
    )


def reveal(text: str | bytes) -> str:
    r"""Return text of several lines in which nothing is hidden: control and invisible characters become
    escapes such as `\x1b`.

    Used for commands and edits. `make_readable` is not suitable for them, because it drops control strings
    with their content, which a shell would run.
    """
    text = replace_surrogates(to_text(text))
    return text if text.isprintable() else re.sub(_HIDDEN, _escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_count(count: float, noun: str, several: str = "") -> str:
    """Format a count with its noun: `1 session`, `3 sessions`, `0.5 days`. `several` is the plural of the noun,
    if it is irregular."""
    number = f"{count:g}" if count % 1 else f"{count:.0f}"
    return f"{number} {noun if count == 1 else several or f'{noun}s'}"


def format_size(count: float) -> str:
    """Format a number of bytes: `812 bytes`, `1.4 kB`, `12.4 MB`."""
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} GB"


def _fit_width(text: str, limit: int) -> str:
    if len(text) * 2 <= limit:
        return text
    used = kept = 0  # `kept` characters leave a cell for the ellipsis
    for at, char in enumerate(text):
        used += _count_cells(char)
        if used > limit:
            return f"{text[:kept]}…" if limit > 0 else ""
        if used < limit:
            kept = at + 1
    return text


def _count_cells(char: str) -> int:
    if char.isascii():
        return 1
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


# Output to a model

_FENCE = r"(?i)<\s*(/?)\s*memory-context\s*>"
_NOTE = r"(?i)\[System note:\s*The following is recalled memory context[^\]]{0,4000}\]\s*"


def clean_replay(text: str) -> str:
    """Return the text of a message without the memory context that was added to it for the model."""
    if "memory" in text.lower():
        text = re.sub(_NOTE, "", _strip_fences(text))
    return text.strip()


def _strip_fences(text: str) -> str:
    """Remove every `<memory-context>` block from a text, in one pass. An opening tag without a closing tag, or
    the reverse, is removed too."""
    drops: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []
    for tag in re.finditer(_FENCE, text):
        if not tag[1]:
            opened.append(tag.span())
        else:
            drops.append((opened[0][0] if opened else tag.start(), tag.end()))
            opened = []
    drops += opened
    bounds = [0, *[edge for drop in drops for edge in drop], len(text)]
    return "".join([text[start:end] for start, end in list(pairwise(bounds))[::2]])


# Links

LONGEST_HOST, LONGEST_REST = 100, 100
_LINK_PARTS = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*:)?(?P<slashes>//)?(?P<user>[^/?#]*@)?(?P<host>[^/?#]*)(?P<rest>.*)",
    re.S,
)
_HOST = re.compile(r"(?:[\w-]{1,63}\.){1,10}[^\W\d_][\w-]{1,62}|\d{1,3}(?:\.\d{1,3}){3}")


def is_misleading(text: str, target: str) -> bool:
    """Return whether a link can deceive its reader: its text is not the address `target`, or the target
    contains a user name."""
    here, there = _LINK_PARTS.fullmatch(text.strip()), _LINK_PARTS.fullmatch(target)
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
    there = _LINK_PARTS.fullmatch(target)
    assert there is not None
    place = there["host"].lower().partition(":")[0].removeprefix("www.")
    return any(host.removeprefix("www.") != place for host in hosts)


def show_target(target: str, *, is_whole: bool = False) -> str:
    """Format the target address of a link for people: in printable ASCII, without a user name, and always with
    its host. Unless `is_whole` is true, a long target is shortened."""
    from urllib.parse import quote

    plain = "".join(char if "!" <= char <= "~" else quote(char, errors="replace") for char in target)
    found = _LINK_PARTS.fullmatch(plain)
    assert found is not None
    host = found["host"] if found["slashes"] else f"{found['user'] or ''}{found['host']}"
    rest = found["rest"]
    if not is_whole and len(host) > LONGEST_HOST:  # the end of a host name identifies it
        host = f"…{host[1 - LONGEST_HOST :]}"
    if not is_whole and len(rest) > LONGEST_REST:
        rest = f"{rest[: LONGEST_REST - 1]}…"
    return f"{found['scheme'] or ''}{found['slashes'] or ''}{host}{rest}"


def _normalize_place(found: re.Match[str]) -> tuple[str, str]:
    from urllib.parse import unquote

    host = f"{found['user'] or ''}{found['host']}"
    return host.lower(), unquote(found["rest"]).rstrip("/")
