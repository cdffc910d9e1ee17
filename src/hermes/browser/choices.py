"""A list of things to tick. Ticks are drawn as signs, not as colours, so that everybody can tell them apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

TICKED, OPEN = "[x]", "[ ]"


class Choice(NamedTuple):
    value: str
    label: str
    ticked: bool


class Choices(OptionList):
    BINDINGS = [  # noqa: RUF012
        Binding("space", "select", show=False),
        Binding("tab,left,right", "app.focus_next", show=False),
        Binding("enter", "screen.apply", show=False),
    ]

    def __init__(self, choices: Iterable[Choice], *, id: str) -> None:  # noqa: A002 -- as Textual calls it
        self._choices = list(choices)
        super().__init__(*[Option(_drawn(choice)) for choice in self._choices], id=id, compact=True)

    @property
    def ticked(self) -> tuple[str, ...]:
        return tuple(choice.value for choice in self._choices if choice.ticked)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        choice = self._choices[event.option_index]
        self._choices[event.option_index] = changed = choice._replace(ticked=not choice.ticked)
        self.replace_option_prompt_at_index(event.option_index, _drawn(changed))


def _drawn(choice: Choice) -> Content:
    return Content(f"{TICKED if choice.ticked else OPEN} {choice.label}")
