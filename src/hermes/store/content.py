"""How values are kept in text columns: the documented face of structured content, and JSON that is never fatal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hermes import errors
from hermes.logs import get_logger
from hermes.text import replace_surrogates, to_text

log = get_logger(__name__)

_decode: Callable[[str], Any] | None = None
_encode: Callable[[object], str] | None = None

UID_DIGITS, HEX_DIGITS = 32, "0123456789abcdef"
JSON_PREFIX = "\x00json:"
"""Marks structured content in `messages.content`, where other programs look for it."""


def to_json(value: object) -> str:
    """JSON text of any value; what in it JSON cannot say is said by `str()`, never refused."""
    try:
        return _dumps(value)
    except (TypeError, ValueError, RecursionError):
        pass
    import json

    try:
        return replace_surrogates(json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError):
        return _dumps(str(value))


def _dumps(value: object) -> str:
    # The standard library's writer, because it refuses what JSON cannot say (dates, bytes, sets), as documented;
    # msgspec would quietly make something else of it. It also keeps infinities, which msgspec drops.
    global _encode
    if _encode is None:
        import json

        _encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return replace_surrogates(_encode(value))


def from_json(text: str, otherwise: Any) -> Any:
    """The value of JSON text that any program may have written; `otherwise` if it is not JSON."""
    global _decode
    if _decode is None:
        import msgspec  # several times as fast as the standard library, but dear to import: not for a list

        _decode = msgspec.json.Decoder().decode
    try:
        return _decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        pass
    import json

    try:  # NaN, huge numbers, lone surrogates in escapes: legal for the reference's writer
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def encode(content: object) -> tuple[Any, str]:
    """(column value, content_kind) of a message's content."""
    if isinstance(content, str):
        return replace_surrogates(content), "text"
    if isinstance(content, list | dict | tuple):
        try:
            return JSON_PREFIX + _dumps(content), "json"
        except (TypeError, ValueError):
            return replace_surrogates(str(content)), "text"
        except RecursionError:
            raise errors.make_error(
                errors.InvalidArgument, "content is nested too deeply to be stored"
            ) from None
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content).decode("utf-8", "replace"), "text"
    return (None if content is None else replace_surrogates(str(content))), "text"


def decode(content: Any, kind: str | None) -> Any:
    """The content as it was given. Rows of other programs have no kind: the prefix speaks for them."""
    if isinstance(content, bytes):
        return to_text(content)
    if kind == "text" or not isinstance(content, str) or not content.startswith(JSON_PREFIX):
        return content
    value = from_json(content[len(JSON_PREFIX) :], _BROKEN)
    if value is _BROKEN:
        log.warning("a message holds structured content that is not valid JSON; shown as stored")
        return content
    return value


_BROKEN = object()


def json_or_none(value: object) -> str | None:
    """A JSON column: falsy values are not stored, as documented."""
    return to_json(value) if value else None


def encode_document(name: str, value: object) -> str:
    """A mapping as JSON text, for what must come back as it was given: what JSON cannot say is refused."""
    if not isinstance(value, Mapping):
        raise errors.make_error(
            errors.InvalidArgument, f"{name} must be a mapping, got {type(value).__name__}"
        )
    try:
        return _dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as problem:
        raise errors.make_error(
            errors.InvalidArgument, f"{name} cannot be written as JSON: {problem}"
        ) from None


def decode_document(text: str) -> dict[str, Any]:
    """A stored mapping; an empty one, if another program has put something else in its place."""
    value = from_json(text, None)
    return value if isinstance(value, dict) else {}


def format_uid(stored: Any) -> str | None:
    """A message's uid as text. Layout 1 stored the 16 bytes; None for a row of another program."""
    if isinstance(stored, bytes):
        return stored.hex()
    return stored if isinstance(stored, str) and not stored.strip(HEX_DIGITS) else None


def parse_uid(stored: Any) -> str | None:
    """The uid in a row from a damaged file; None if it is not one."""
    uid = format_uid(stored)
    return uid if uid is not None and len(uid) == UID_DIGITS else None


def count_calls(role: str, tool_calls: object) -> int:
    """How many tool calls a message makes: the documented arithmetic."""
    if role == "tool" or tool_calls is None:
        return 0
    return len(tool_calls) if isinstance(tool_calls, list | tuple) else 1
