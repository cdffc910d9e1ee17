"""The one gate for text: what comes in, what is searched and previewed, what goes out to a terminal or a model.

The invariant: text that has passed `replace_surrogates` can be encoded as UTF-8, and is otherwise exactly what was
given: NUL, control characters and odd line ends are kept. Making text harmless is the business of the way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from unicodedata import category, east_asian_width

PREVIEW_SHOWN = 60

REFERENCE = "\0blob:"
"""How a string begins that stands for an attachment kept elsewhere: `store.sessions.attachments` puts it there."""
LONGEST_URL_HEAD = 256
FILE_NAMES = ("media_type", "mime_type", "mimeType", "format")
INLINE_NAMES = ("inlineData", "inline_data")
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_="
SHORTEST_FILE = 48
"""Where a format puts a file, so many letters of base64 are one; fewer may be a word."""


# In


def has_lone_surrogates(text: str) -> bool:
    """Whether the text holds surrogates, so that it cannot be encoded and `replace_surrogates` will change it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def replace_surrogates(text: str) -> str:
    """The text with every lone surrogate as U+FFFD; two that belong together become their character."""
    if text.isascii() or not has_lone_surrogates(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def to_text(value: object) -> str:
    """What stands in a column for text, where another program may have put anything."""
    if isinstance(value, str):
        return value
    return "" if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def extract_text(content: object) -> str:
    """The text of a message's content: of structured content every string but type tags and embedded files."""
    if content is None:
        return ""
    return replace_surrogates(content if isinstance(content, str) else "\n".join(_iterate_strings(content)))


def extract_tool_call_text(calls: object) -> str:
    """The text of tool calls: names of arguments, strings and numbers, also inside arguments sent as JSON."""
    if calls is None:
        return ""
    if isinstance(calls, str):
        decoded = _decode_json(calls)
        if decoded is None:
            return replace_surrogates(calls)
        calls = decoded
    return replace_surrogates("\n".join(_iterate_keys_and_values(calls)))


def make_preview(content: object, length: int = PREVIEW_SHOWN) -> str | None:
    """The first words of a message on one line; None only if it has no content. Costs the same at any size."""
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
    """Strings in document order. A stack instead of recursion: nesting is as deep as its author liked."""
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
    """Whether formats put a file under this key: its base64, or, of an object, one whose `data` is (`inline`).

    That is `data` beside a media type, as of Anthropic, OpenAI and MCP, and Google's inline data. A plain-text
    document has a media type too, and says that it is text.
    """
    if isinstance(holder[key], dict):
        return key in INLINE_NAMES
    return (
        key == "data"
        and (inline or not holder.keys().isdisjoint(FILE_NAMES))
        and holder.get("type") != "text"
    )


def get_data_url_head(text: str) -> str:
    """What comes before the data in a data URL, its comma included; empty if the text is none."""
    if not text.startswith("data:"):
        return ""
    head = text[: text.find(",", 0, LONGEST_URL_HEAD) + 1]
    return head if len(head.split()) == 1 and ("/" in head or ";base64," in head) else ""


def _is_embedded(text: str) -> bool:
    """Whether it is a file as a URL, or stands for one. Words that only begin so have a space among them."""
    if not text.startswith("data:"):
        return text.startswith(REFERENCE)
    return get_data_url_head(text) != "" or len(text[:LONGEST_URL_HEAD].split()) == 1


def _is_encoded(text: str) -> bool:
    """Whether it begins as base64 does: looking at all of it would cost too much for a preview."""
    return len(text) >= SHORTEST_FILE and not text[:SHORTEST_FILE].strip(BASE64)


def _iterate_keys_and_values(value: object) -> Iterator[str]:
    """Keys, strings and numbers in document order."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, item in reversed(value.items()):
                decoded = _decode_json(item) if key == "arguments" and isinstance(item, str) else None
                stack += [item if decoded is None else decoded, str(key)]
        elif isinstance(value, list | tuple):
            stack.extend(reversed(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)


def _decode_json(text: str) -> dict[str, object] | list[object] | None:
    """The object or array that a JSON text stands for; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    import json  # not needed to list or print

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


# Out to a terminal

# Compiled by `re` when they are first used: most text needs none of them.
_ESCAPES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"  # strings: OSC, DCS …
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]"  # short escapes
)
_GAPS = "\r\n|[\t\n\v\f\r\x85\u2028\u2029]"
_UNSAFE = "[\0-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_LINE_ENDS = "\r\n|[\v\f\r\x85\u2028\u2029]"
# Controls, and letters and marks that take no room: not the joiners that some scripts and emoji are written with.
_HIDDEN = (
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_UNSAFE_IN_LINES = "[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"

# Valid in JSON as they are, but terminals act on them, and programs that split text into lines split it there.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def escape_json(text: str) -> str:
    """JSON that a terminal can only show, and whose lines are lines for every program; it says the same."""
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def make_printable(text: str | bytes, *, width_limit: int | None = None) -> str:
    """One line that a terminal can only show: no escape sequences, controls or changes of direction.

    `width_limit` is in terminal cells; what is longer ends in an ellipsis.
    """
    text = to_text(text)
    if width_limit is not None:
        text = text[: 64 * width_limit + 4096]  # more than enough for what can be seen
    text = replace_surrogates(text)
    if not text.isprintable():
        text = re.sub(_UNSAFE, "", re.sub(_GAPS, " ", re.sub(_ESCAPES, "", text)))
    return text if width_limit is None else _fit_width(text, width_limit)


def make_readable(text: str | bytes) -> str:
    """The same for text of several lines: its line ends, all as one kind, and its tabs stay."""
    text = replace_surrogates(to_text(text))
    if text.isprintable():
        return text
    lines = re.sub(_LINE_ENDS, "\n", re.sub(_ESCAPES, "", text))
    return re.sub(_UNSAFE_IN_LINES, "", lines)


def spell_controls(text: str | bytes) -> str:
    """Text of several lines in which no character is dropped: controls and changes of direction become `\\x1b`.

    For what people and models said. `make_readable` drops escape sequences, with the text inside of control strings.
    """
    text = replace_surrogates(to_text(text))
    if text.isprintable():
        return text
    return re.sub(_UNSAFE_IN_LINES, _escape, re.sub(_LINE_ENDS, "\n", text))


# Characters that are printable by their category and still show nothing, or only change the one before.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def make_visible(text: str) -> str:
    """The text with every character that cannot be seen, or reorders others, as `⟨U+202E⟩`. Lines and tabs stay.

    For what a person is asked to allow: stricter than `reveal`, and not to be mistaken for typed text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or (char.isprintable() and not _UNSEEN.match(char)) else f"⟨U+{ord(char):04X}⟩"
        for char in text
    )


def reveal(text: str | bytes) -> str:
    """Text of several lines in which nothing is hidden: what a terminal obeys or does not show becomes `\\x1b`.

    For commands and edits. `make_readable` drops control strings with all that stands in them, which a shell would run.
    """
    text = replace_surrogates(to_text(text))
    return text if text.isprintable() else re.sub(_HIDDEN, _escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_count(count: float, noun: str, several: str = "") -> str:
    """`1 session`, `3 sessions`, `0.5 days`; `several` where an s at the end is not enough."""
    number = f"{count:g}" if count % 1 else f"{count:.0f}"
    return f"{number} {noun if count == 1 else several or f'{noun}s'}"


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


# Out to a model

_FENCE = r"(?i)<\s*(/?)\s*memory-context\s*>"
_NOTE = r"(?i)\[System note:\s*The following is recalled memory context[^\]]{0,4000}\]\s*"


def clean_replay(text: str) -> str:
    """What a person or the model said, without memory that was injected around it then."""
    if "memory" in text.lower():
        text = re.sub(_NOTE, "", _strip_fences(text))
    return text.strip()


def _strip_fences(text: str) -> str:
    """Drop every fenced block, and the tags that fence nothing. One pass, however many tags there are."""
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
