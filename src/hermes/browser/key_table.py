"""The keys, in one table: what the app binds, the bottom line shows and the help explains."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static


class Key(NamedTuple):
    keys: str
    action: str
    label: str
    """For the bottom line; empty for those that only the help tells of."""
    help: str

    @property
    def name(self) -> str:
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
    Key("ctrl+l", "refresh_list", "", "look again: others may have changed something"),
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

    def _list_fitting(self) -> list[Key]:
        *others, last = [key for key in KEYS if key.label]
        room = self.size.width - _measure_key(last)
        fitting: list[Key] = []
        for key in others:
            room -= _measure_key(key)
            if room < 0:
                break
            fitting.append(key)
        return [*fitting, last]

    def render(self) -> Content:
        parts: list[str | tuple[str, str]] = []
        for key in self._list_fitting():
            parts += [(f" {key.name}", "bold $accent"), f" {key.label} "]
        return Content.assemble(*parts)

    async def on_click(self, event: events.Click) -> None:
        end = 0
        for key in self._list_fitting():
            end += _measure_key(key)
            if event.x < end:
                await self.run_action(f"app.{key.action}")
                return


def _measure_key(key: Key) -> int:
    return len(key.name) + len(key.label) + 3
