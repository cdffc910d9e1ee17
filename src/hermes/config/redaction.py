"""Redacts secrets in settings, for display and for logs.

A value is hidden if any part of its dotted path is the name of a secret, as in
`platforms.api-server.keys.ann`. All other text is redacted by `secrets.redact`, and a URL loses its password
and its query. A reference such as `${NAME}` is not a secret and stays visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

HIDDEN = "…"
SHORTEST = 6
"""The minimum length of secrets that are replaced in texts. Shorter secrets would match inside ordinary
words."""

_SECRET_WORD = (
    r"(?:token|secret|password|passphrase|key|apikey|credential|cookie)s?|passwd|auth|authorization|bearer"
)
_REFERENCE = r"\$\{\w+\}"
_URL = r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/@'\"]*@)?(?P<rest>[^\s?#'\"]*)(?P<more>[?#][^\s'\"]*)?"


def is_secret_name(name: str) -> bool:
    """Return whether a value with this name or dotted path is secret, for example `bot_token`, `apiKeys` or
    `keys.ann`."""
    return any(re.fullmatch(_SECRET_WORD, _get_last_word(part)) for part in name.split("."))


def _get_last_word(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.split(r"[^A-Za-z0-9]+", words.strip("_-"))[-1].lower()


def redact_setting(key: str, value: Any) -> Any:
    """Return `value`, the value of a setting or of a whole section, with secrets redacted. `key` is its dotted
    path."""
    if isinstance(value, dict):
        return {_redact_name(name): redact_setting(f"{key}.{name}", inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_setting(key, inner) for inner in value]
    if is_secret_name(key):
        return value if value is None or _is_reference(value) else mask_secret(str(value))
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Return the text with everything redacted that looks like a secret, and with the passwords and queries of
    URLs removed."""
    from hermes.secrets import redact

    return redact(re.sub(_URL, _redact_url, text))


def describe_type(value: object) -> str:
    """Return the type of a value in words, for errors that must not quote the value."""
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), type(value).__name__)


def mask_secret(secret: str) -> str:
    """Return a secret with its middle hidden, so that a person can tell it from another one. A short secret is
    hidden completely."""
    return f"{secret[:3]}{HIDDEN}{secret[-4:]}" if len(secret) >= 16 else HIDDEN


def find_secrets(values: Any, key: str = "") -> Iterator[str]:
    """Yield every secret that is written literally in the settings, at any depth. A reference such as
    `${NAME}` is not a secret."""
    if isinstance(values, dict):
        for name, inner in values.items():
            yield from find_secrets(inner, f"{key}.{name}")
    elif isinstance(values, list | tuple):
        for inner in values:
            yield from find_secrets(inner, key)
    elif isinstance(values, str | int) and not isinstance(values, bool) and is_secret_name(key):
        yield from [] if not str(values).strip() or _is_reference(values) else [str(values)]


def _redact_name(name: Any) -> Any:
    return redact_text(name) if isinstance(name, str) else name


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_REFERENCE, value.strip()) is not None


def _redact_url(found: re.Match[str]) -> str:
    user = f"{HIDDEN}@" if "@" in found[0][len(found["scheme"]) :].split("/")[0] else ""
    more = f"{found['more'][0]}{HIDDEN}" if found["more"] else ""
    return f"{found['scheme']}{user}{found['rest']}{more}"
