"""The browser application: combines the widgets and turns keys into store requests.

Store requests run in threads, so that typing never waits. The result of an outdated request is discarded, and
an error is shown in the status line.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from hermes.browser import actions, source
from hermes.browser.actions import Changes, Exports
from hermes.browser.conversation_list import ConversationList
from hermes.browser.dialogs import FilterDialog, HelpScreen
from hermes.browser.key_table import BINDINGS, KEYS, BottomLine
from hermes.browser.lines import Question, SearchInput, StatusLine
from hermes.browser.preview import Preview
from hermes.browser.rows import PAGE, Conversation
from hermes.browser.view_state import View
from hermes.terminal_input import SILENCE_S
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

DEBOUNCE = 0.08
WIDE, TALL = 80, 24
"""Minimum size of the terminal for the preview, beside the list or below it."""
INTERRUPTED: Final = "\0interrupted"
"""The result of the app after Ctrl-C. No session has this id."""
OWN = frozenset(key.action for key in KEYS)
PATIENCE = 0.01
OPENING_KEYS = frozenset(
    name
    for key in KEYS
    if key.action in ("filter", "rename", "export", "help")
    for name in key.keys.split(",")
)


class Opening(Enum):
    """The state of a dialog or question that a key opens. Until it is drawn, further keys are discarded."""

    NOTHING = auto()
    PRESSED = auto()
    BEGUN = auto()


class Browser(App[str]):
    CSS_PATH = "style.tcss"
    TITLE = "hermes sessions"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (140, "-huge")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]  # noqa: RUF012
    BINDINGS = [  # noqa: RUF012
        *BINDINGS,
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "quit", show=False, priority=True),
    ]

    def __init__(self, db: SessionDB, view: View, at: tuple[str, int | None] | None = None) -> None:
        super().__init__()
        self.animation_level = "none"  # animations would delay the list
        self._db, self.view, self._at = db, view, at
        self._request_number = 0
        """The number of requests for the view. The result of an earlier request is outdated."""
        self._answered = 0
        self._pages: set[int] = set()
        """Offsets of the pages that are being loaded."""
        self._has_room = True
        self._wants_preview: bool | None = None
        self._changes, self._exports = Changes(self, db), Exports(self, db)
        self._opening = Opening.NOTHING
        self.search, self.list, self.preview = SearchInput(), ConversationList(), Preview(db)
        self.status, self.question = StatusLine(), Question()

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("❯ ", id="prompt")
            yield self.search
        with Container(id="body"):
            yield self.list
            yield self.preview
        yield self.status
        yield self.question
        yield BottomLine()

    def on_mount(self) -> None:
        self.search.value = self.view.query
        self.search.focus()
        self._load(pause=0)

    # ---------------------------------------------------------------- content

    @on(Input.Changed, "#search")
    def _change_query(self, event: Input.Changed) -> None:
        if event.value.strip() != self.view.query.strip():
            self.view = self.view._replace(query=event.value)
            self._load(pause=DEBOUNCE)

    def reload(self, cursor: int | None = None, stay_on: Conversation | None = None) -> None:
        """Load the view again. The cursor stays on the current conversation, or moves to `cursor` or
        `stay_on`."""
        place = self.list.cursor if cursor is None else cursor
        self._load(pause=0, cursor=place, stay_on=stay_on or self.list.current)

    def _load(self, pause: float, cursor: int = 0, stay_on: Conversation | None = None) -> None:
        self._request_number += 1
        self._load_rows(self._request_number, pause, cursor, stay_on)

    @work(exclusive=True, group="view", exit_on_error=False)
    async def _load_rows(self, number: int, pause: float, cursor: int, stay_on: Conversation | None) -> None:
        view, at = self.view, self._at
        try:
            await asyncio.sleep(pause)
            offset = 0 if view.is_search else cursor // PAGE * PAGE
            rows = await asyncio.to_thread(source.load_rows, self._db, view, offset)
            if stay_on is not None:
                moved_to = rows.find_index(stay_on.root_id)
                cursor = cursor if moved_to is None else moved_to
            if at is not None:
                cursor = await asyncio.to_thread(source.find_index, self._db, rows, *at)
        finally:
            is_stale = number != self._request_number
            self._answered = max(number, self._answered)
        if not is_stale:
            self._at = None
            self._pages.clear()
            self.preview.words = view.words
            self.list.show(rows, view, cursor)

    async def wait_until_settled(self) -> None:
        """Wait until the list shows the results of the typed query, so that Enter applies to them."""
        while self._answered != self._request_number or self.search.value.strip() != self.view.query.strip():
            await asyncio.sleep(PATIENCE)

    @on(ConversationList.Needs)
    def _fetch(self, event: ConversationList.Needs) -> None:
        for offset in self.list.rows.find_missing(event.first, event.last):
            if offset not in self._pages and not self.view.is_search:
                self._pages.add(offset)
                self._fetch_page(offset)

    @work(group="pages", exit_on_error=False)
    async def _fetch_page(self, offset: int) -> None:
        number, rows = self._request_number, self.list.rows
        try:
            page = await asyncio.to_thread(source.load_page, self._db, self.view, offset)
        finally:
            self._pages.discard(offset)
        if number != self._request_number:
            return
        rows.put(offset, page)
        if len(page) < min(PAGE, rows.count_rest(offset)):
            self.reload()  # there are fewer rows now
        else:
            self.list.redraw()

    @on(ConversationList.Moved)
    def _follow_cursor(self) -> None:
        self.status.describe(self.view, self.list.rows, self.list.cursor)
        if not self.preview.has_class("-hidden"):
            self.preview.showing = self.list.current

    @on(Preview.Gone)
    def _report_preview_gone(self) -> None:
        if (conversation := self.list.current) is not None:
            self.status.show_message(
                f"{conversation.short_name} is gone: it was deleted elsewhere", is_problem=True
            )

    def report_gone(self, conversation: Conversation) -> None:
        self.status.show_message(
            f"{conversation.short_name} is gone: it was deleted elsewhere", is_problem=True
        )
        self.reload()

    def on_resize(self, event: events.Resize) -> None:
        self._has_room = event.size.width >= WIDE or event.size.height >= TALL
        self._show_or_hide_preview()

    def _show_or_hide_preview(self) -> None:
        """Show the preview if there is space for it, unless the user has shown or hidden it."""
        is_visible = self._has_room if self._wants_preview is None else self._wants_preview
        self.preview.set_class(not is_visible, "-hidden")
        if not is_visible and self.preview.has_focus:
            self.search.focus()
        self._follow_cursor()

    # ---------------------------------------------------------------- moving

    def action_move(self, by: int) -> None:
        self.list.move(by)

    def action_move_pages(self, pages: int) -> None:
        self.list.move_pages(pages)

    def action_move_to_end(self, last: bool) -> None:
        self.list.move_to_end(last)

    def action_scroll_preview(self, lines: int) -> None:
        self.preview.scroll_relative(y=3 * lines, animate=False)

    def action_switch(self) -> None:
        if self.preview.has_focus:
            self.search.focus()
            return
        self._wants_preview = True
        self._show_or_hide_preview()
        self.preview.focus()

    def on_key(self, event: events.Key) -> None:
        """Move printable keys from the preview to the query."""
        if self.preview.has_focus and event.is_printable and event.character:
            self.search.focus()
            self.search.insert_text_at_cursor(event.character)

    def action_preview(self) -> None:
        self._wants_preview = self.preview.has_class("-hidden")
        self._show_or_hide_preview()

    def action_leave(self) -> None:
        if self.preview.has_focus:
            self.search.focus()
        elif self.search.value:
            self.search.value = ""
        else:
            self.exit()

    async def on_event(self, event: events.Event) -> None:
        """Discard keys that were pressed before a dialog or a question was visible."""
        if isinstance(event, events.Key) and not event.is_forwarded and event.key != "ctrl+c":
            if self._opening is not Opening.NOTHING:
                return
            if event.key in OPENING_KEYS and self._is_list_in_front:
                self._opening = Opening.PRESSED
                self.set_timer(SILENCE_S, self._give_up_opening)
        elif isinstance(event, events.Paste) and self._opening is not Opening.NOTHING:
            return
        await super().on_event(event)

    def _give_up_opening(self) -> None:
        """Stop waiting for a dialog, because the key had no effect."""
        if self._opening is Opening.PRESSED:
            self._opening = Opening.NOTHING

    def _end_opening(self) -> None:
        self._opening = Opening.NOTHING

    @property
    def _is_list_in_front(self) -> bool:
        return len(self.screen_stack) == 1 and not self.question.is_open

    def action_interrupt(self) -> None:
        self.exit(INTERRUPTED)

    async def action_help(self) -> None:
        self._opening = Opening.BEGUN
        await self.push_screen(HelpScreen())
        self.screen.call_after_refresh(self._end_opening)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the keys of the list while a question or a dialog is open."""
        return action not in OWN or self._is_list_in_front

    # ---------------------------------------------------------------- choosing and changing

    @on(ConversationList.Opened)
    def _resume_row(self) -> None:
        self.action_resume()

    @work(group="choose", exclusive=True, exit_on_error=False)
    async def action_resume(self) -> None:
        await self.wait_until_settled()
        if (conversation := self.list.current) is None:
            return
        live = await asyncio.to_thread(source.load_conversation, self._db, conversation.id)
        if live is None:
            self.report_gone(conversation)
        else:
            self.exit(live.id)

    @work(group="change", exit_on_error=False)
    async def action_pin(self) -> None:
        await self._changes.apply(actions.plan_pin)

    @work(group="change", exit_on_error=False)
    async def action_archive(self) -> None:
        await self._changes.apply(actions.plan_archive)

    @work(group="change", exit_on_error=False)
    async def action_delete(self) -> None:
        await self._changes.apply(actions.plan_delete)

    @work(group="change", exit_on_error=False)
    async def action_undo(self) -> None:
        await self._changes.undo()

    def action_rename(self) -> None:
        if (conversation := self.list.current) is None:
            self._end_opening()
        else:
            self._ask_line("rename", conversation, "New title:", make_printable(conversation.title or ""))

    def action_export(self) -> None:
        if (conversation := self.list.current) is None:
            self._end_opening()
        else:
            self._ask_line("export", conversation, "Export to:", actions.suggest_file_name(conversation))

    def _ask_line(self, about: str, conversation: Conversation, question: str, answer: str) -> None:
        self._opening = Opening.BEGUN
        self.question.ask(about, conversation, question, answer)
        self.question.call_after_refresh(self._end_opening)

    @on(Question.Answered)
    @work(group="change", exit_on_error=False)
    async def _act_on_answer(self, event: Question.Answered) -> None:
        conversation = event.conversation
        if event.about == "rename":
            await self._changes.rename(conversation, event.answer)
            return
        if not self._exports.is_running:
            await self._exports.write(conversation, event.answer)

    @on(Question.Cancelled)
    def _leave_question(self) -> None:
        """Cancel a running export and keep the typed name. Without an export, close the question."""
        if self._exports.is_running:
            self._exports.cancel()
        else:
            self.close_question()

    def close_question(self) -> None:
        self.question.close()
        self.search.focus()

    # ---------------------------------------------------------------- order and filters

    def action_refresh_list(self) -> None:
        self.reload()

    def action_sort(self) -> None:
        self.view = self.view.with_next_order()
        self._load(pause=0)

    def action_filter(self) -> None:
        self._opening = Opening.BEGUN
        self._open_filter()

    @work(group="filter", exclusive=True, exit_on_error=False)
    async def _open_filter(self) -> None:
        try:
            sources = await asyncio.to_thread(source.list_sources, self._db)
            await self.push_screen(FilterDialog(self.view, sources), self._apply_filter)
        finally:
            self.screen.call_after_refresh(self._end_opening)

    def _apply_filter(self, view: View | None) -> None:
        if view is not None:
            self.view = view
            self._load(pause=0)

    # ---------------------------------------------------------------- errors, shown as one line

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._show_problem(event.worker.error)

    @on(Preview.Failed)
    def _show_preview_problem(self, event: Preview.Failed) -> None:
        self._show_problem(event.problem)

    def _show_problem(self, problem: BaseException) -> None:
        self.status.show_message(str(problem) or type(problem).__name__, is_problem=True)
