r"""Detection and removal of one secret in every spelling in which programs write it.

These spellings are covered, including mixtures and nesting of them:

- the secret itself, with each line end as LF or CR LF;
- JSON escapes: `\"`, `\/`, `\n`, `\u00e9`, even if escaped twice, as in arguments of tool calls;
- percent-encoding of any of its characters, and `+` for a space;
- the Base64 of the whole secret as a separate word, in both alphabets.

These forms are not covered: a part of the secret, an encoding of the secret together with other text (the
Base64 of `name:password`), a hash. Valid JSON stays valid JSON.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from functools import cached_property
from unicodedata import normalize

from hermes import errors
from hermes.store.content import JSON_PREFIX
from hermes.text import has_lone_surrogates, replace_surrogates

INSTEAD = "[scrubbed]"
"""The text that replaces a scrubbed secret."""
SHORTEST = 6
"""The minimum length of a secret, in characters."""

_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_JSON_BEGINS = ("{", "[", '"')
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*+', re.DOTALL)


class Spellings:
    """Finds and removes one secret in all its spellings. The `repr` of this object does not contain the secret."""

    def __init__(self, secret: object) -> None:
        self._secret = _check_secret(secret)
        # Two patterns are searched separately, because each alone runs at memory speed and a combined pattern
        # does not.
        patterns = (_build_pattern(self._secret), _build_base64_pattern(self._secret))
        self._in_text = [re.compile(pattern) for pattern in patterns]
        self._in_bytes = [re.compile(pattern.encode()) for pattern in patterns]

    @cached_property
    def folded(self) -> Spellings:
        """The secret with the normalisation that stored tags have (case folding and NFC)."""
        small = normalize("NFC", self._secret.casefold())
        return self if small == self._secret else Spellings(small)

    def __repr__(self) -> str:
        return "Spellings(…)"

    def remove_from_bytes(self, data: bytes) -> tuple[bytes, int]:
        """Return (`data` without the secret, number of times that the secret occurred in it).

        In binary data (a picture, a damaged database), the secret is overwritten with the same number of bytes,
        so that all offsets stay the same.
        """
        if not any(pattern.search(data) for pattern in self._in_bytes):
            return data, 0
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return self.mask_in_bytes(data)
        cleaned, count = self.remove_from_text(text)
        return cleaned.encode(), count

    def mask_in_bytes(self, data: bytes) -> tuple[bytes, int]:
        """Overwrite the secret in `data` with asterisks of the same length, wherever all its bytes are
        contiguous. Return (new data, number of times that the secret occurred)."""
        count = 0
        for pattern in self._in_bytes:
            data, replaced = pattern.subn(lambda match: b"*" * len(match[0]), data)
            count += replaced
        return data, count

    def remove_from_text(self, text: str) -> tuple[str, int]:
        if not self._is_in(text):
            return text, 0
        if text.startswith(JSON_PREFIX):
            cleaned, count = self.remove_from_text(text[len(JSON_PREFIX) :])
            return JSON_PREFIX + cleaned, count
        if _is_json(text):
            return self._remove_from_json(text)
        lines, count = text.split("\n"), 0
        for at, line in enumerate(lines):
            if _is_json(line):  # a line of a JSONL file, such as a transcript
                lines[at], replaced = self._remove_from_json(line)
                count += replaced
        text = "\n".join(lines)
        while self._is_in(text):  # repeat, because a removal can join two parts to the secret again
            for pattern in self._in_text:
                text, replaced = pattern.subn(INSTEAD, text)
                count += replaced
        return text, count

    def _is_in(self, text: str) -> bool:
        return any(pattern.search(text) for pattern in self._in_text)

    def clean_name(self, name: str) -> str:
        """Return a file name, or another short text about a place, without the secret. The result can be shown
        in a message."""
        return self.remove_from_text(name)[0]

    def _remove_from_json(self, document: str) -> tuple[str, int]:
        """Remove the secret from a valid JSON document. Only the strings and numbers that contain the secret
        are rewritten. Return (new document, number of times that the secret occurred)."""
        count = 0

        def clean_token(match: re.Match[str]) -> str:
            nonlocal count
            token = match[0]
            if not self._is_in(token):
                return token
            if token[0] != '"':
                count += 1
                return json.dumps(INSTEAD)
            value, replaced = self.remove_from_text(json.loads(token, strict=False))
            count += replaced or 1
            encoded = json.dumps(value, ensure_ascii=token.isascii() or has_lone_surrogates(value))
            # An escape and the next characters can form the secret: `\n` and `ever-tell` contain
            # `never-tell`.
            return _escape_all(value) if self._is_in(encoded) else encoded

        cleaned = _TOKEN.sub(clean_token, document)
        if not self._is_in(cleaned):
            return cleaned, count
        # The secret contains brackets or quotes of the JSON itself, so no smaller part can be replaced.
        return json.dumps(INSTEAD), count + 1


def _check_secret(secret: object) -> str:
    """Return the secret in normal form, with LF line ends and without blanks around it. Raise an error if it is
    not text, or if removing it could change other text. The error message does not contain the secret."""
    if not isinstance(secret, str):
        raise errors.make_error(errors.InvalidArgument, f"a secret must be text, got {type(secret).__name__}")
    text = replace_surrogates(secret).replace("\r\n", "\n").strip()
    if len(text) < SHORTEST:
        raise errors.make_error(
            errors.InvalidArgument,
            f"a secret must have at least {SHORTEST} characters, because fewer could match other text",
        )
    if len(set(text)) == 1:
        raise errors.make_error(
            errors.InvalidArgument, "a secret must not be one repeated character, which looks like a mask"
        )
    if text in INSTEAD:
        raise errors.make_error(
            errors.InvalidArgument,
            f"a secret must not be part of {INSTEAD}, the text that replaces scrubbed secrets",
        )
    return text


def _build_pattern(secret: str) -> str:
    """Return a regular expression that matches all spellings of the secret except its Base64. Each character of
    the secret becomes a group of alternatives. Matching takes linear time.

    In the searched text, a sequence of backslashes is matched as a whole, and only from its start, so that each
    sequence is tried only once.
    """
    parts: list[str] = []
    backslashes = 0
    for char in secret:
        if char == "\\":
            backslashes += 1
            continue
        parts.append(_build_char_pattern(char, after=backslashes, first=not parts))
        backslashes = 0
    if backslashes:
        parts.append(rf"(?:\\u005[cC]|%5[cC]|\\){{{backslashes},}}+")
    return "".join(parts)


def _build_char_pattern(char: str, *, after: int, first: bool) -> str:
    """Return a regular expression for all spellings of `char`, one character of the secret. `after` is the
    number of backslashes directly before this character in the secret. `first` is true if only backslashes come
    before it.

    The searched text may contain more backslashes than the secret, because each escaping doubles them.
    """
    units = [int.from_bytes(pair) for pair in _split_pairs(char.encode("utf-16-be"))]
    escaped = r"\\++".join(f"u{_build_hex_pattern(f'{unit:04x}')}" for unit in units)
    if char in _SHORT_ESCAPES:
        escaped = f"(?:{escaped}|{_SHORT_ESCAPES[char]})"
    elif char in '"/':
        escaped = f"(?:{escaped}|{char})"
    if char == "\n":
        escaped = rf"(?:r\\++)?{escaped}"
    plain = [r"\r?\n" if char == "\n" else re.escape(char), *([r"\+"] if char == " " else [])]
    percent = "".join("%" + _build_hex_pattern(f"{byte:02x}") for byte in char.encode())
    bare = "|".join([*plain, percent])
    if after:
        start = r"(?<!\\)" if first else ""
        return rf"{start}(?:\\u005[cC]|%5[cC]|\\){{{after},}}+(?:{bare}|{escaped})"
    run = r"\\(?<!\\\\)\\*+" if first else r"\\++"
    return f"(?:{bare}|{run}{escaped})"


def _split_pairs(data: bytes) -> list[bytes]:
    return [data[at : at + 2] for at in range(0, len(data), 2)]


def _build_hex_pattern(digits: str) -> str:
    """Return a regular expression that matches these hexadecimal digits in upper and lower case."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _build_base64_pattern(secret: str) -> str:
    """Return a regular expression that matches the Base64 of the whole secret as a separate word."""
    forms = {encode(secret.encode()).decode().rstrip("=") for encode in (b64encode, urlsafe_b64encode)}
    inside = "[A-Za-z0-9+/_-]"
    alone = (
        rf"{re.escape(form)}(?<!{inside}{re.escape(form)})={{0,2}}(?!{inside}|=)" for form in sorted(forms)
    )
    return "|".join(alone)


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(_JSON_BEGINS):
        return False
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _escape_all(value: str) -> str:
    """Return `value` as a JSON string in which every character except ASCII letters and digits is escaped."""
    units = _split_pairs(value.encode("utf-16-be", "surrogatepass"))
    chars = [(int.from_bytes(unit), unit.decode("utf-16-be", "replace")) for unit in units]
    return (
        '"' + "".join(c if c.isascii() and c.isalnum() else f"\\u{number:04x}" for number, c in chars) + '"'
    )
