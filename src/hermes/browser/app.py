"""The browser application: combines the widgets and turns keys into store requests.

Store requests run in threads, so that typing never waits for them. The result of an outdated request is
discarded. An error is shown in the status line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal
from textual.driver import Driver
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from hermes.browser import actions, source
from hermes.browser.actions import Changes, Exports
from hermes.browser.conversation_list import ConversationList
from hermes.browser.dialogs import FilterDialog, HelpScreen
from hermes.browser.key_queue import PATIENCE_S, KeyQueue, Pressed
from hermes.browser.key_table import BINDINGS, KEYS, BottomLine
from hermes.browser.lines import EDITING_KEYS, JOB_KEYS, Question, SearchInput, StatusLine
from hermes.browser.preview import Preview
from hermes.browser.rows import PAGE, AnyRow, Conversation, name_several
from hermes.browser.view_state import View
from hermes.store.workspace import WorkspaceName
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

DEBOUNCE = 0.08
"""The search starts when the query has not changed for this many seconds."""
WIDE, TALL = 80, 24
"""The preview is shown if the terminal has at least `WIDE` columns or `TALL` lines."""
INTERRUPTED: Final = "\0interrupted"
"""The result of the app after Ctrl-C. No session has this id."""
PLANS: Final = {"pin": actions.plan_pin, "archive": actions.plan_archive, "delete": actions.plan_delete}
"""The functions that plan a change without further input, by the argument of the key's action."""
OWN = frozenset(key.action.partition("(")[0] for key in KEYS)
"""The names of the actions of the list, without their arguments."""
WORK_TO_WAIT_FOR = frozenset(("view", "pages", "filter", "answer", "undo", "mark", "choose"))
"""The groups of workers that later keys wait for, because the effect of a key may depend on their results."""
REST_PAUSE = 0.25
"""After this many seconds without a key, the remaining results of a search are loaded. The best results are
loaded at once."""
IMPATIENCE_S = 1.0
"""Seconds after which Ctrl-C leaves the browser, even if earlier keys have not taken effect yet."""


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
        """How often the view has been requested. Only the result of the last request is used."""
        self._pages: set[int] = set()
        """Offsets of the pages that are being loaded."""
        self._has_room = True
        self._wants_preview: bool | None = None
        self._changes, self._exports = Changes(self, db), Exports(self, db)
        self._keys = KeyQueue(self)
        self._is_opening = False
        """Whether a dialog or a question was requested and is not drawn yet."""
        self._project = WorkspaceName(str(db.workspace_of(Path.cwd())))
        self.search, self.list, self.preview = SearchInput(), ConversationList(), Preview(db)
        self.status, self.question = StatusLine(), Question()

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        if driver.__name__ != "LinuxDriver":  # Windows, or a driver that the user chose
            return driver
        from hermes.browser.terminal_driver import TerminalDriver

        return TerminalDriver

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
        """Load the view again. The cursor moves to `stay_on`, by default the current row. If that row is no
        longer listed, the cursor moves to the index `cursor`, by default its current index."""
        place = self.list.cursor if cursor is None else cursor
        self._load(pause=0, cursor=place, stay_on=stay_on or self.list.current or self.list.current_job)

    def _load(self, pause: float, cursor: int = 0, stay_on: AnyRow | None = None) -> None:
        self._request_number += 1
        self._load_rows(self._request_number, pause, cursor, stay_on)

    @work(exclusive=True, group="view", exit_on_error=False)
    async def _load_rows(self, number: int, pause: float, cursor: int, stay_on: AnyRow | None) -> None:
        view, at = self.view, self._at
        await asyncio.sleep(pause)
        rows = await asyncio.to_thread(source.load_rows, self._db, view, cursor)
        rows.open_jobs(self.list.opened)
        if stay_on is not None:
            moved_to = rows.find_row(stay_on)
            cursor = cursor if moved_to is None else moved_to
        if at is not None:
            cursor = await asyncio.to_thread(source.find_index, self._db, rows, *at)
        if number == self._request_number:
            self._at = None
            self._pages.clear()
            self.preview.words = view.words
            if leaving := self._changes.leaving:
                rows.remove(leaving)
            self.list.show(rows, view, cursor)
            if rows.are_more and view.limit is None and rows.total <= source.MOST_FOUND:
                self._load_rest(number)

    @work(exclusive=True, group="rest", exit_on_error=False)
    async def _load_rest(self, number: int) -> None:
        """After the best results of a search, load and count its other results."""
        await asyncio.sleep(REST_PAUSE)
        view, before = self.view, self.list.rows
        rows = await asyncio.to_thread(source.search_rows, self._db, view, source.MOST_COUNTED, before)
        if number == self._request_number:
            if leaving := self._changes.leaving:
                rows.remove(leaving)
            stay_on = self.list.current
            moved_to = None if stay_on is None else rows.find_index(stay_on.root_id)
            self.list.show(rows, view, self.list.cursor if moved_to is None else moved_to)

    @on(ConversationList.Needs)
    def _fetch(self, event: ConversationList.Needs) -> None:
        self._fetch_pages(event.first, event.last)

    def _fetch_pages(self, first: int, last: int) -> None:
        for offset in self.list.rows.find_missing(first, last):
            # While a change removes conversations, the offsets of the store and of the list differ.
            if offset not in self._pages and not self.view.is_search and not self._changes.leaving:
                self._pages.add(offset)
                self._fetch_page(offset)

    @work(group="pages", exit_on_error=False)
    async def _fetch_page(self, offset: int) -> None:
        number, rows = self._request_number, self.list.rows
        try:
            page = await asyncio.to_thread(source.load_page, self._db, self.view, offset)
        finally:
            self._pages.discard(offset)
        if number != self._request_number or self._changes.leaving:
            return
        rows.put(offset, page)
        if len(page) < min(PAGE, rows.count_rest(offset)):
            self.reload()  # the store has fewer rows than before
        else:
            self.list.redraw()

    @on(ConversationList.Moved)
    def _follow_cursor(self) -> None:
        self.status.describe(self.view, self.list.rows, self.list.cursor, len(self.list.marks))
        if not self.preview.has_class("-hidden"):
            self.preview.showing = self.list.previewed

    @on(Preview.Gone)
    def _report_preview_gone(self) -> None:
        """Report that a conversation no longer exists, unless the browser itself may be deleting it."""
        if (conversation := self.list.current) is not None and not self._changes.is_storing:
            self._say_gone([conversation])

    def report_gone(self, conversations: Sequence[Conversation]) -> None:
        self._say_gone(conversations)
        for conversation in conversations:
            self.list.marks.pop(conversation.root_id, None)
        self.reload()

    def _say_gone(self, conversations: Sequence[Conversation]) -> None:
        gone = "is gone: it was" if len(conversations) == 1 else "are gone: they were"
        self.status.show_message(f"{name_several(conversations)} {gone} deleted elsewhere", is_problem=True)

    def on_resize(self, event: events.Resize) -> None:
        self._has_room = event.size.width >= WIDE or event.size.height >= TALL
        self._show_or_hide_preview()

    def _show_or_hide_preview(self) -> None:
        """Show the preview as the user chose or, without a choice, if there is space for it."""
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
        """If the preview has the focus, insert a printable key into the query and focus the query."""
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
        elif self.list.marks:
            self.list.unmark(list(self.list.marks.values()))
        else:
            self._leave(None)

    @work(group="choose", exclusive=True, exit_on_error=False)
    async def _leave(self, result: str | None) -> None:
        """Wait until all changes are stored, then end the browser. `result` is the id of the session to resume,
        or None."""
        await self._changes.finish()
        self.exit(result)

    def _leave_at_once(self) -> None:
        self._changes.stop()
        self.exit(INTERRUPTED)

    # ---------------------------------------------------------------- keys in order

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            key = event.key if isinstance(event, events.Key) else ""
            if self._exports.is_running and key in ("escape", "ctrl+c"):
                self._keys.clear()  # discard the keys that wait for the export
                self._exports.cancel()
            if key == "ctrl+c":
                self.set_timer(IMPATIENCE_S, self._leave_at_once)
            if key != "escape" or not self._exports.is_running:
                self._keys.put(event)
        else:
            await super().on_event(event)

    def can_handle_at_once(self, event: Pressed) -> bool:
        """Return whether a key only edits the query. The effect of such a key does not depend on the list."""
        if not (self._is_list_in_front and self.search.has_focus) or self._is_opening:
            return False
        if isinstance(event, events.Paste) or event.is_printable:
            return True
        return event.key in EDITING_KEYS and (bool(self.search.value) or event.key not in JOB_KEYS)

    def is_ready_for(self, event: Pressed) -> bool:
        """Return whether all keys that were pressed before `event` have taken effect."""
        key = event.key if isinstance(event, events.Key) else ""
        waits_for = WORK_TO_WAIT_FOR | {"rest"} if self._reaches_last_row(key) else WORK_TO_WAIT_FOR
        return (
            self._request_number > 0
            and not self._is_opening
            and self.search.value.strip() == self.view.query.strip()
            and not any(worker.group in waits_for and not worker.is_finished for worker in self.workers)
        )

    def _reaches_last_row(self, key: str) -> bool:
        steps = {"down": 1, "shift+down": 1, "pagedown": self.list.page}
        is_near = self.list.cursor + steps.get(key, 0) >= self.list.rows.total
        return self._is_list_in_front and (key in ("end", "ctrl+a") or (key in steps and is_near))

    async def load_current_row(self) -> None:
        """If the row under the cursor is not loaded, load it and wait until it is there."""
        if self.list.current is None:
            self._fetch_pages(self.list.cursor, self.list.cursor)
            while any(worker.group == "pages" and not worker.is_finished for worker in self.workers):
                await asyncio.sleep(PATIENCE_S)

    def _begin_opening(self) -> None:
        self._is_opening = True

    def _end_opening(self) -> None:
        self._is_opening = False

    @property
    def _is_list_in_front(self) -> bool:
        return len(self.screen_stack) == 1 and not self.question.is_open

    def action_interrupt(self) -> None:
        self._leave(INTERRUPTED)

    async def action_help(self) -> None:
        self._begin_opening()
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
        if self.list.toggle_job() or (conversation := self.list.current) is None:
            return
        live = await asyncio.to_thread(source.load_conversation, self._db, conversation.id)
        if live is None:
            self.report_gone([conversation])
        else:
            await self._changes.finish()
            self.exit(live.id)

    def action_open_job(self, is_open: bool) -> None:
        (self.list.open_job if is_open else self.list.close_job)()

    def action_change(self, about: str) -> None:
        """Change the marked conversations, or the one under the cursor. If the change would remove many
        conversations from the list, ask first."""
        if targets := self._find_targets():
            step = PLANS[about](self._db, targets)
            if step.question is None:
                self._changes.apply(step)
            else:
                self._ask_line(about, targets, step.question, "")

    def _find_targets(self) -> tuple[Conversation, ...]:
        """Return the conversations to change. If the cursor is on the row of a job, say that it is none."""
        if self.list.current_job is not None and not self.list.marks:
            self.status.show_message("This row is a job: ⏎ shows its conversations, which can be changed")
        return self.list.targets

    @work(group="undo", exit_on_error=False)
    async def action_undo(self) -> None:
        await self._changes.undo()

    def action_rename(self) -> None:
        if (conversation := self.list.current) is not None:
            title = make_printable(conversation.title or "")
            self._ask_line("rename", (conversation,), "New title:", title)

    def action_tag(self) -> None:
        if targets := self._find_targets():
            tags = ", ".join(actions.list_common_tags(targets))
            self._ask_line("tag", targets, f"Tags of {name_several(targets)}:", tags)

    def action_export(self) -> None:
        if targets := self._find_targets():
            several = f"Export {name_several(targets)} to:" if len(targets) > 1 else "Export to:"
            self._ask_line("export", targets, several, actions.suggest_file_name(targets))

    def _ask_line(self, about: str, targets: tuple[Conversation, ...], question: str, answer: str) -> None:
        self._begin_opening()
        self.question.ask(about, targets, question, answer)
        self.question.call_after_refresh(self._end_opening)

    @on(Question.Answered)
    @work(group="answer", exit_on_error=False)
    async def _act_on_answer(self, event: Question.Answered) -> None:
        if event.about in PLANS:
            self.close_question()
            if event.answer.strip().lower() in actions.YES:
                self._changes.apply(PLANS[event.about](self._db, event.targets))
        elif event.about == "rename":
            await self._changes.answer(actions.plan_rename(self._db, event.targets[0], event.answer))
        elif event.about == "tag":
            await self._changes.answer(actions.plan_tags(self._db, event.targets, event.answer))
        elif not self._exports.is_running:
            await self._exports.write(event.targets, event.answer)

    @on(Question.Cancelled)
    def _leave_question(self) -> None:
        """If an export is running, cancel it and keep the typed name. Otherwise close the question."""
        if self._exports.is_running:
            self._exports.cancel()
        else:
            self.close_question()

    def close_question(self) -> None:
        self.question.close()
        self.search.focus()

    # ---------------------------------------------------------------- marks

    @on(ConversationList.Marked)
    def _count_marks(self) -> None:
        self.status.clear_message()
        self._follow_cursor()

    def action_mark(self) -> None:
        self.list.toggle_mark()

    def action_mark_and_move(self, by: int) -> None:
        self.list.mark(filter(None, [self.list.current]))
        self.list.move(by)
        self.list.mark(filter(None, [self.list.current]))

    @work(group="mark", exit_on_error=False)
    async def action_mark_range(self) -> None:
        self.list.mark(await self._load_range(*self.list.find_range()))

    @work(group="mark", exit_on_error=False)
    async def action_mark_all(self) -> None:
        every = await self._load_range(0, self.list.rows.total - 1)
        if all(row.root_id in self.list.marks for row in every):
            self.list.unmark(every)
        else:
            self.list.mark(every)

    async def _load_range(self, first: int, last: int) -> list[Conversation]:
        return await asyncio.to_thread(source.load_range, self._db, self.view, self.list.rows, first, last)

    # ---------------------------------------------------------------- order and filters

    def action_project(self) -> None:
        workspace = None if self.view.workspace else self._project
        self._apply_filter(self.view._replace(workspace=workspace))

    def action_refresh_list(self) -> None:
        self.reload()

    def action_sort(self) -> None:
        self._apply_filter(self.view.with_next_order())

    def action_filter(self) -> None:
        self._begin_opening()
        self._open_filter()

    @work(group="filter", exclusive=True, exit_on_error=False)
    async def _open_filter(self) -> None:
        try:
            sources = await asyncio.to_thread(source.list_sources, self._db)
            await self.push_screen(FilterDialog(self.view, sources, self._project), self._apply_filter)
        finally:
            self.screen.call_after_refresh(self._end_opening)

    def _apply_filter(self, view: View | None) -> None:
        if view is not None:
            self.view = view
            self.status.clear_message()
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
