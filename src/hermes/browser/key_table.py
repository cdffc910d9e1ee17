"""The table of all keys of the browser. The key bindings, the bottom line of the screen and the key help are
made from it."""

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
    """Label in the bottom line. If it is empty, only the help lists the key."""
    help: str

    @property
    def name(self) -> str:
        names = {"enter": "⏎", "escape": "Esc", "tab": "Tab", "f1": "F1", "shift+down": "⇧↓ ⇧↑"}
        first = self.keys.split(",")[0]
        return names.get(first) or first.replace("ctrl+", "^").upper()


KEYS = (
    Key("enter", "resume", "resume", "continue this conversation"),
    Key("ctrl+x,insert,ctrl+@", "mark", "mark", "mark it and go to the next; also Insert and ^Space"),
    Key("ctrl+d", "change('delete')", "delete", "move it to the trash, or all that are marked"),
    Key("ctrl+z", "undo", "undo", "undo the last change: delete, archive, pin, tag or rename"),
    Key("ctrl+p", "change('pin')", "pin", "pin it: it stays on top and is never pruned; again to unpin"),
    Key("ctrl+t", "change('archive')", "archive", "archive it; again to unarchive"),
    Key("ctrl+g", "tag", "tag", "change its tags, with commas between them"),
    Key("ctrl+e", "export", "export", "export it to a file: .jsonl, .md or .html"),
    Key("ctrl+a", "mark_all", "mark all", "mark all that are found or listed; again to unmark them"),
    Key("ctrl+y", "mark_range", "", "mark all from the last marked one to this one"),
    Key("shift+down", "mark_and_move(1)", "", "mark while moving"),
    Key("ctrl+r", "rename", "rename", "change its title"),
    Key("ctrl+n", "project", "project", "show only the project of this directory; again to show all"),
    Key("ctrl+f", "filter", "filter", "choose sources and kinds, and whether the archive is shown"),
    Key("ctrl+s", "sort", "sort", "change the order: last activity, start, title"),
    Key("ctrl+o", "preview", "preview", "show or hide the transcript"),
    Key("tab", "switch", "scroll", "go to the transcript and back; arrows, PageUp, g and G scroll there"),
    Key("ctrl+l", "refresh_list", "", "reload the list"),
    Key("escape", "leave", "", "clear the query, then the marks; leave when there are none"),
    Key("f1", "help", "keys", "show these keys; also ? while nothing is typed"),
)
MOVING = (
    ("↑ ↓ PgUp PgDn", "move in the list while you type"),
    ("Home End", "to the first and the last conversation"),
    ("⏎ → ←", "open and close a job; the arrows do so while nothing is typed"),
    ("^↑ ^↓", "scroll the transcript while you type"),
    ("^C", "leave at once"),
)


BINDINGS: list[BindingType] = [
    *(Binding(key.keys, key.action, key.label, show=False) for key in KEYS),
    Binding("shift+up", "mark_and_move(-1)", show=False),
    # sent for Enter if it was pressed before the terminal was in raw mode
    Binding("ctrl+j", "resume", show=False),
]
"""The key bindings of the app. They have no priority, so each key is processed after all keys that were
pressed earlier, wherever the focus is."""


class BottomLine(Static):
    """The bottom line: as many keys as fit, always including the help key. Clicking a key has the same effect
    as pressing it."""

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
