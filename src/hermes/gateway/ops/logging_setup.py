"""The gateway log: one line per event, as text or as JSON.

Every line is redacted: the gateway's own secrets, and texts that look like a secret. For example, an SDK logs the
URL that it calls, and the URL contains the token. Message texts are not logged. SDKs log message texts at debug
level, so the debug level of SDKs is always off.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from hermes import clock
from hermes.secrets import redact
from hermes.text import escape_json, make_printable, make_readable

OURS = "hermes"
SHORTEST = 4
"""Secrets shorter than this are not redacted, because they would match inside ordinary words."""
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logs(*, verbose: bool = False, as_json: bool = False, secrets: Iterable[str] = ()) -> None:
    """Log to stderr from now on. A second call replaces the previous configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(secrets) if as_json else PlainLines(secrets))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger(OURS).setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(True)


def redact_also(secrets: Iterable[str]) -> None:
    """Add secrets that the log must redact from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _RedactingFormatter):
            handler.formatter.add(secrets)


def redact_all(secrets: Iterable[str], text: str) -> str:
    """Return `text` with all `secrets` redacted. Other parts that look like a secret are redacted too."""
    # Literal and URL-encoded.
    written = {form for secret in secrets for form in (secret, quote(secret, safe=""))}
    to_redact = [secret for secret in written if len(secret) >= SHORTEST]
    for secret in sorted(to_redact, key=len, reverse=True):  # a secret may contain another one
        text = text.replace(secret, "[redacted]")
    return redact(text)


class _RedactingFormatter(logging.Formatter):
    """A formatter that redacts secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = frozenset(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        self._secrets |= frozenset(secrets)

    def redact(self, text: str) -> str:
        return redact_all(self._secrets, text)

    def redact_value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.redact(str(value))

    def format_message(self, record: logging.LogRecord) -> tuple[str, str]:
        """Return the message and the traceback of a log record, both redacted. The traceback is empty if the record
        has none."""
        where = self.formatException(record.exc_info) if record.exc_info else record.exc_text or ""
        return self.redact(record.getMessage()), self.redact(where)

    def extra_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields that the caller added to a log record with `extra`, by name and redacted."""
        beside = {name: value for name, value in vars(record).items() if name not in _USUAL}
        return {name: self.redact_value(value) for name, value in beside.items()}


class PlainLines(_RedactingFormatter):
    """A formatter of log lines as text, such as `2025-03-05T09:15:23+01:00 warning telegram: out of reach; again in
    4 s`."""

    def format(self, record: logging.LogRecord) -> str:
        message, where = self.format_message(record)
        beside = "".join(f" {name}={value}" for name, value in self.extra_fields(record).items())
        line = f"{clock.format_iso(record.created)} {record.levelname.lower()} {_library_of(record)}{message}{beside}"
        return make_printable(line) + (f"\n{make_readable(where)}" if where else "")


class JsonLines(_RedactingFormatter):
    def format(self, record: logging.LogRecord) -> str:
        message, where = self.format_message(record)
        fields = {
            "time": clock.format_iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            **self.extra_fields(record),
            **({"error": where} if where else {}),
        }
        return escape_json(json.dumps(fields, ensure_ascii=False))


def _library_of(record: logging.LogRecord) -> str:
    """Return the name of the library that wrote a log record, as a prefix for the line. Return an empty string for
    records of Hermes."""
    library = record.name.split(".")[0]
    return "" if library == OURS else f"{library}: "
