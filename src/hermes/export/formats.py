"""The formats by name, and which one a file's name asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

Write = Callable[..., Iterator[str]]


class Format(NamedTuple):
    module: str
    """Has `write(conversations, load)`, which gives the text piece by piece; that of Markdown also takes
    `remote_images`."""
    ending: str
    is_split: bool
    """Whether a folder gets a file for each conversation; else it gets one for all."""
    is_titled: bool = False
    """Whether such a file is named after the title, too."""

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
"""What `/save` writes without a name. It is not offered elsewhere: it cannot be imported."""
BY_ENDING = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}


def choose_format(name: str | None, output: str) -> Format:
    """The one that was named, else the one that the file's name asks for."""
    return FORMATS[name or BY_ENDING.get(Path(output).suffix.lower(), "jsonl")]
