"""Where the query is typed. The focus stays here; keys that mean nothing in a line of text move the list."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.widgets import Input


class SearchInput(Input, inherit_bindings=False):
    """Every key comes here first and is dealt with in its turn: what was typed before Enter counts for it."""

    BINDINGS = [  # noqa: RUF012
        Binding("up", "app.move(-1)", show=False),
        Binding("down", "app.move(1)", show=False),
        Binding("pageup", "app.move_pages(-1)", show=False),
        Binding("pagedown", "app.move_pages(1)", show=False),
        Binding("home", "app.move_to_end(False)", show=False),
        Binding("end", "app.move_to_end(True)", show=False),
        Binding("ctrl+up", "app.scroll_preview(-1)", show=False),
        Binding("ctrl+down", "app.scroll_preview(1)", show=False),
        Binding("tab", "app.switch", show=False),
        Binding("left", "cursor_left", show=False),
        Binding("right", "cursor_right", show=False),
        Binding("ctrl+left", "cursor_left_word", show=False),
        Binding("ctrl+right", "cursor_right_word", show=False),
        Binding("ctrl+a", "home", show=False),
        Binding("backspace", "delete_left", show=False),
        Binding("delete", "delete_right", show=False),
        Binding("ctrl+w,ctrl+backspace", "delete_left_word", show=False),
        Binding("ctrl+u", "delete_left_all", show=False),
        Binding("ctrl+k", "delete_right_all", show=False),
        Binding("ctrl+v", "paste", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(
            placeholder="Type to search titles and what was said",
            compact=True,
            select_on_focus=False,
            id="search",
        )

    async def on_key(self, event: events.Key) -> None:
        if event.character == "?" and not self.value:
            event.prevent_default()
            event.stop()
            await self.run_action("app.help")
