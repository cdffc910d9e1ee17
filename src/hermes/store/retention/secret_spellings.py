r"""One secret in every spelling in which programs write it down, and bytes without it.

Covered are, also mixed and nested in each other:

- the secret itself; a line end in it also as CR LF;
- JSON escapes: `\"`, `\/`, `\n`, `\u00e9`, and the same once more escaped, as in arguments of tool calls;
- percent-encoding of any of its characters, and `+` for a space;
- the Base64 of the whole secret where it stands alone, in both alphabets.

Not covered is what no rule leads back to the secret: a part of it, another encoding of it together with something
else (the Base64 of `name:password`), a hash. What is valid JSON before is valid JSON afterwards.
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
SHORTEST = 6

_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_JSON_BEGINS = ("{", "[", '"')
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*+', re.DOTALL)


class Spellings:
    """A secret that is to be found and taken out. Nothing that it says of itself shows the secret."""

    def __init__(self, secret: object) -> None:
        self._secret = _check_secret(secret)
        # Two patterns, because each alone is searched for at memory speed, and both in one are not.
        patterns = (_build_pattern(self._secret), _build_base64_pattern(self._secret))
        self._in_text = [re.compile(pattern) for pattern in patterns]
        self._in_bytes = [re.compile(pattern.encode()) for pattern in patterns]

    @cached_property
    def folded(self) -> Spellings:
        """The secret as a tag is kept."""
        small = normalize("NFC", self._secret.casefold())
        return self if small == self._secret else Spellings(small)

    def __repr__(self) -> str:
        return "Spellings(…)"

    def remove_from_bytes(self, data: bytes) -> tuple[bytes, int]:
        """The data without the secret, and how often it was in there.

        In what is not text (a picture, a damaged database) it is overwritten, so that everything keeps its place.
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
        """The data at its old length, with the secret overwritten wherever it stands in one piece."""
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
            if _is_json(line):  # one of many, as in a transcript
                lines[at], replaced = self._remove_from_json(line)
                count += replaced
        text = "\n".join(lines)
        while self._is_in(text):  # again, should what is left close up to another one
            for pattern in self._in_text:
                text, replaced = pattern.subn(INSTEAD, text)
                count += replaced
        return text, count

    def _is_in(self, text: str) -> bool:
        return any(pattern.search(text) for pattern in self._in_text)

    def clean_name(self, name: str) -> str:
        """A name that may be told, because the secret is not in it."""
        return self.remove_from_text(name)[0]

    def _remove_from_json(self, document: str) -> tuple[str, int]:
        """Valid JSON without the secret. Only strings (and numbers) that hold it are written anew."""
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
            # An escape and what follows it can look like the secret: `\n` before `ever-tell` and `never-tell`.
            return _escape_all(value) if self._is_in(encoded) else encoded

        cleaned = _TOKEN.sub(clean_token, document)
        if not self._is_in(cleaned):
            return cleaned, count
        # The secret is made of brackets and quotes: nothing smaller is valid.
        return json.dumps(INSTEAD), count + 1


def _check_secret(secret: object) -> str:
    """The secret as it is stored. What is refused is not repeated in the error."""
    if not isinstance(secret, str):
        raise errors.make_error(errors.InvalidArgument, f"a secret must be text, got {type(secret).__name__}")
    text = replace_surrogates(secret).replace("\r\n", "\n").strip()
    if len(text) < SHORTEST:
        raise errors.make_error(
            errors.InvalidArgument,
            f"a secret has at least {SHORTEST} characters, so that nothing else is hit",
        )
    if len(set(text)) == 1:
        raise errors.make_error(
            errors.InvalidArgument, "one character again and again is a mask, not a secret"
        )
    if text in INSTEAD:
        raise errors.make_error(
            errors.InvalidArgument, f"this is part of {INSTEAD}, which stands for scrubbed secrets"
        )
    return text


def _build_pattern(secret: str) -> str:
    r"""A pattern of alternatives for each character, in time that grows with the text.

    A run of backslashes is never tried twice: it is taken whole, and begun only where it begins.
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
    """One character, after so many backslashes of the secret, which escaping has doubled some times."""
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
    """Hexadecimal digits in either case."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _build_base64_pattern(secret: str) -> str:
    """The Base64 of the secret as a word of its own."""
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
    """A JSON string in which only letters and digits stand for themselves."""
    units = _split_pairs(value.encode("utf-16-be", "surrogatepass"))
    chars = [(int.from_bytes(unit), unit.decode("utf-16-be", "replace")) for unit in units]
    return (
        '"' + "".join(c if c.isascii() and c.isalnum() else f"\\u{number:04x}" for number, c in chars) + '"'
    )
