"""Modal dialogs of the browser: the filters and the key help."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from hermes.browser.key_table import KEYS, MOVING
from hermes.browser.view_state import KIND_NAMES, View
from hermes.store.sessions.listing import KINDS
from hermes.store.workspace import WorkspaceName
from hermes.text import make_printable

ARCHIVE, PROJECT = "archive", "project"
TICKED, OPEN = "[x]", "[ ]"
"""The marks of ticked and unticked choices. They are characters and not colours, so that everybody can
distinguish them."""


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
        super().__init__(*[Option(_render_choice(choice)) for choice in self._choices], id=id, compact=True)

    @property
    def ticked(self) -> tuple[str, ...]:
        return tuple(choice.value for choice in self._choices if choice.ticked)

    def tick_only(self, values: Collection[str]) -> None:
        for index, choice in enumerate(self._choices):
            self._set(index, choice.value in values)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._set(event.option_index, not self._choices[event.option_index].ticked)

    def _set(self, index: int, ticked: bool) -> None:
        self._choices[index] = changed = self._choices[index]._replace(ticked=ticked)
        self.replace_option_prompt_at_index(index, _render_choice(changed))


def _render_choice(choice: Choice) -> Content:
    return Content(f"{TICKED if choice.ticked else OPEN} {choice.label}")


class FilterDialog(ModalScreen[View | None]):
    """The filter dialog. It returns the view with the chosen filters, or None if it was cancelled."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape,ctrl+f", "cancel", show=False),
        Binding("ctrl+x", "reset", show=False),
    ]

    def __init__(self, view: View, sources: Sequence[tuple[str, int]], project: WorkspaceName) -> None:
        super().__init__()
        self._view, self._sources, self._project = view, sources, project

    def compose(self) -> ComposeResult:
        view = self._view
        chosen = view.sources or ()
        counts = dict(self._sources)
        sources = [
            Choice(name, f"{make_printable(name, width_limit=16)}  {count:,}", name in chosen)
            for name, count in {**counts, **{name: counts.get(name, 0) for name in chosen}}.items()
        ]
        kinds = [Choice(kind, KIND_NAMES[kind], kind in view.visible_kinds) for kind in KINDS]
        with Vertical(id="dialog"):
            with Horizontal(id="choices"):
                with Vertical():
                    yield Static("Only from", classes="heading")
                    yield Choices(sources, id="sources")
                with Vertical():
                    yield Static("Show", classes="heading")
                    name = make_printable((view.workspace or self._project).label, width_limit=20)
                    others = [
                        Choice(ARCHIVE, "the archive", view.archived),
                        Choice(PROJECT, f"only in {name}", view.workspace is not None),
                    ]
                    yield Choices([*kinds, *others], id="kinds")
            yield Static("Space tick · Tab other side · ⏎ apply · ^X reset", classes="hint")

    async def action_apply(self) -> None:
        """Close the dialog and return the view with the filters that the user ticked.

        If the user has not changed the ticked kinds, the view keeps its kinds. If these are the default (None)
        and a source is ticked, all kinds of that source except subagents are shown.
        """
        sources = self.query_one("#sources", Choices).ticked
        ticked = self.query_one("#kinds", Choices).ticked
        kinds: tuple[str, ...] | None = tuple(kind for kind in KINDS if kind in ticked)
        if not kinds or kinds == self._view.visible_kinds:
            kinds = self._view.kinds
        workspace = (self._view.workspace or self._project) if PROJECT in ticked else None
        await self.dismiss(
            self._view._replace(
                sources=sources or None, kinds=kinds, archived=ARCHIVE in ticked, workspace=workspace
            )
        )

    def action_reset(self) -> None:
        """Tick the default filters. The dialog stays open, so that the user can choose other filters or cancel
        the reset."""
        self._view = self._view._replace(sources=None, kinds=None, archived=False, workspace=None)
        self.query_one("#sources", Choices).tick_only(())
        self.query_one("#kinds", Choices).tick_only(self._view.visible_kinds)

    async def action_cancel(self) -> None:
        await self.dismiss(None)


class HelpScreen(ModalScreen[None]):
    BINDINGS = [Binding("escape,enter,f1,q,question_mark", "dismiss", show=False)]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog", can_focus=True):
            yield Static("Type to search titles and messages", classes="heading")
            for keys, explanation in [*((key.name, key.help) for key in KEYS), *MOVING]:
                with Horizontal(classes="key"):
                    yield Static(keys)
                    yield Static(explanation)
