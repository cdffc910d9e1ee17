"""The formats by name, and the choice of a format by the suffix of a file name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

Write = Callable[..., Iterator[str]]


class Format(NamedTuple):
    module: str
    """The module with `write(conversations, load)`, which yields the text in pieces. The Markdown module also
    accepts `remote_images`."""
    ending: str
    is_split: bool
    """Whether an export to a folder writes one file per conversation. If False, it writes one file for
    all."""
    is_titled: bool = False
    """Whether the file name of a single conversation contains its title in addition to its id."""

    @property
    def write(self) -> Write:
        function: Write = import_module(self.module).write
        return function


FORMATS = {
    "jsonl": Format("hermes.export.jsonl", ".jsonl", is_split=False),
    "md": Format("hermes.export.markdown", ".md", is_split=True, is_titled=True),
    "html": Format("hermes.export.html_page", ".html", is_split=False),
    "trace": Format("hermes.export.trace", ".jsonl", is_split=True),
}
JSON_DOCUMENT = Format("hermes.export.json_document", ".json", is_split=True)
"""The default format of `/save`. No other surface offers this format, because it cannot be imported."""
BY_ENDING = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}
IMPORTABLE_ENDINGS = (".jsonl", ".ndjson")


def choose_format(name: str | None, output: str) -> Format | None:
    """Return the format `name` or, if it is None, the format for the suffix of `output`. Return None if no
    format has this suffix.

    The format for a folder, and for a file without a suffix, is JSONL. Digits after a dot are not a suffix
    but part of the name, as in `backup-1.2`.
    """
    path = Path(output).expanduser()
    ending = path.suffix.lower()
    if name is None and ending in BY_ENDING:
        name = BY_ENDING[ending]
    is_plain = not ending or ending[1:].isdecimal() or ending in IMPORTABLE_ENDINGS
    if name is None and (is_plain or output.endswith("/") or path.is_dir()):
        name = "jsonl"
    return None if name is None else FORMATS[name]
