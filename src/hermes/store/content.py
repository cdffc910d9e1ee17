"""Encoding of values in text columns: structured content in the format of the reference, and tolerant
JSON."""

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
"""The prefix of structured content in `messages.content`, which other programs also recognise."""


def to_json(value: object) -> str:
    """Encode any value as JSON. Values that JSON cannot represent are converted with `str()`."""
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
    # The standard library's encoder refuses values that JSON cannot represent (dates, bytes, sets), as in the
    # reference. msgspec would silently convert them. It would also drop infinities.
    global _encode
    if _encode is None:
        import json

        _encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return replace_surrogates(_encode(value))


def from_json(text: str, otherwise: Any) -> Any:
    """Decode JSON that any program may have written. Return `otherwise` if it is invalid."""
    global _decode
    if _decode is None:
        import msgspec  # faster than the standard library, but slow to import; lists do not need it

        _decode = msgspec.json.Decoder().decode
    try:
        return _decode(text)
    except (ValueError, RecursionError):  # msgspec raises ValueError
        pass
    import json

    try:  # NaN, huge numbers, lone surrogates in escapes: the reference writes them
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def encode(content: object) -> tuple[Any, str]:
    """Encode the content of a message. Return (column value, content_kind)."""
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
    """Decode the content of a message. `kind` is None in a row that another program wrote. The prefix of the
    content then shows whether the content is structured."""
    if isinstance(content, bytes):
        return to_text(content)
    if kind == "text" or not isinstance(content, str) or not content.startswith(JSON_PREFIX):
        return content
    value = from_json(content[len(JSON_PREFIX) :], _BROKEN)
    if value is _BROKEN:
        log.warning("a message contains structured content that is not valid JSON; it is returned as stored")
        return content
    return value


_BROKEN = object()


def json_or_none(value: object) -> str | None:
    """Return the value of a column that contains JSON. Falsy values are stored as NULL, as in the reference."""
    return to_json(value) if value else None


def encode_document(name: str, value: object) -> str:
    """Encode a mapping as JSON from which the same mapping can be decoded. Raise an error if JSON cannot
    represent the mapping exactly. `name` is the name of the argument in the error message."""
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
    """Decode a stored mapping. Return an empty mapping if another program has stored something else."""
    value = from_json(text, None)
    return value if isinstance(value, dict) else {}


def format_uid(stored: Any) -> str | None:
    """Return the uid of a message as text. Old stores (layout 1) contain it as 16 bytes. Return None for a
    row of another program, which has no uid."""
    if isinstance(stored, bytes):
        return stored.hex()
    return stored if isinstance(stored, str) and not stored.strip(HEX_DIGITS) else None


def parse_uid(stored: Any) -> str | None:
    """Return the uid of a message row that was read from a damaged file, as text. Return None if the row has no
    valid uid."""
    uid = format_uid(stored)
    return uid if uid is not None and len(uid) == UID_DIGITS else None


def count_calls(role: str, tool_calls: object) -> int:
    """Return the number of tool calls in a message, counted as the reference counts them. A value that is not
    a list counts as one call. A message with the role `tool` has no calls."""
    if role == "tool" or tool_calls is None:
        return 0
    return len(tool_calls) if isinstance(tool_calls, list | tuple) else 1
