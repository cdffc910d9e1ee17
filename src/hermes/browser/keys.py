"""The keys, in one table: what the app binds, the bottom line shows and the help explains."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.style import Style
from textual.widgets import Static


class Key(NamedTuple):
    keys: str
    action: str
    label: str
    """For the bottom line; empty for those that only the help tells of."""
    help: str

    @property
    def shown(self) -> str:
        names = {"enter": "⏎", "escape": "Esc", "tab": "Tab", "f1": "F1"}
        first = self.keys.split(",")[0]
        return names.get(first) or first.replace("ctrl+", "^").upper()


KEYS = (
    Key("enter", "resume", "resume", "go on with this conversation"),
    Key("ctrl+d", "delete", "delete", "throw it into the trash"),
    Key("ctrl+z", "undo", "undo", "take back the last change: delete, archive, pin or rename"),
    Key("ctrl+r", "rename", "rename", "give it another title"),
    Key("ctrl+p", "pin", "pin", "pin it: it stays on top and is never pruned; again to unpin"),
    Key("ctrl+t", "archive", "archive", "put it away into the archive; again to take it out"),
    Key("ctrl+f", "filter", "filter", "choose sources and kinds, and whether the archive is shown"),
    Key("ctrl+s", "sort", "sort", "another order: last activity, start, title"),
    Key("ctrl+e", "export", "export", "write it to a file: .jsonl, .md or .html"),
    Key("ctrl+o", "preview", "preview", "show or hide the transcript"),
    Key("tab", "switch", "scroll", "to the transcript and back; arrows, PageUp, g and G scroll there"),
    Key("escape", "leave", "", "clear the query; leave when it is empty"),
    Key("f1", "help", "keys", "these keys; also ? while nothing is typed"),
)
MOVING = (
    ("↑ ↓ PgUp PgDn", "move in the list while you type"),
    ("Home End", "to the first and the last conversation"),
    ("^↑ ^↓", "scroll the transcript while you type"),
    ("^C", "leave at once"),
)


BINDINGS: list[BindingType] = [Binding(key.keys, key.action, key.label, show=False) for key in KEYS]
"""Without priority: they are dealt with after the keys that were pressed before them, wherever the focus is."""


class BottomLine(Static):
    """As many keys as there is room for, and always where to find the others. They can be clicked."""

    def __init__(self) -> None:
        super().__init__(id="keys")

    def render(self) -> Content:
        labelled = [key for key in KEYS if key.label]
        *others, last = labelled
        room = self.size.width - _width(last)
        shown: list[Key] = []
        for key in others:
            if _width(key) > room:
                break
            shown.append(key)
            room -= _width(key)
        key_style = Style.parse("bold $accent")
        parts: list[tuple[str, Style] | str] = []
        for key in (*shown, last):
            click = Style.from_meta({"@click": f"app.{key.action}"})
            parts += [(f" {key.shown}", key_style + click), (f" {key.label} ", click)]
        return Content.assemble(*parts)


def _width(key: Key) -> int:
    return len(key.shown) + len(key.label) + 3
