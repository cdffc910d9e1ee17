"""Actions on a conversation: pin, archive, delete, rename and export. All except the export can be undone.

Changes are stored one after the other, in the order of the keys. An action applies to the conversation that
was under the cursor when the key was pressed, even if the store is slow. The list shows a change at once, so
that a key pressed twice acts on two conversations. If the change fails, the list is loaded again.

An export is written in a thread, with its progress in the status line. Esc cancels it, and then no file is
left. The suffix of the file name selects the format. An earlier export is replaced and kept as `FILE~`; no
other file is replaced.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.browser.rows import Conversation
from hermes.errors import ExportCancelled, HermesError, OutputRefused
from hermes.export.background import write_in_thread
from hermes.export.formats import FORMATS, Format
from hermes.export.plan import Plan, plan_conversation
from hermes.export.writer import Destination, Options, Progress

if TYPE_CHECKING:
    from hermes.browser.app import Browser
    from hermes.db.session_db import SessionDB

MOST_UNDOS = 100
ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".md": "md", ".markdown": "md", ".html": "html"}


class Step(NamedTuple):
    summary: str
    """The message after the change, such as `Deleted “x”`."""
    conversation: Conversation
    do: Callable[[], object]
    undo: Callable[[], object]
    """`do` and `undo` block. They return a false value if the conversation does not exist any more."""
    changes: dict[str, Any]
    """The changed fields of the row."""
    leaves: bool = False
    """Whether the conversation moves to the trash or the archive and leaves the usual list."""


def plan_pin(db: SessionDB, conversation: Conversation) -> Step:
    pinned = not conversation.pinned
    return Step(
        f"{'Pinned' if pinned else 'Unpinned'} {conversation.short_name}",
        conversation,
        lambda: db.pin_session(conversation.id, pinned),
        lambda: db.pin_session(conversation.id, not pinned),
        {"pinned": pinned},
    )


def plan_archive(db: SessionDB, conversation: Conversation) -> Step:
    archived = not conversation.archived
    return Step(
        f"{'Archived' if archived else 'Unarchived'} {conversation.short_name}",
        conversation,
        lambda: db.set_session_archived(conversation.id, archived),
        lambda: db.set_session_archived(conversation.id, not archived),
        {"archived": archived},
        leaves=archived,
    )


def plan_delete(db: SessionDB, conversation: Conversation) -> Step:
    return Step(
        f"Deleted {conversation.short_name}",
        conversation,
        lambda: db.trash_session(conversation.id),
        lambda: db.restore_session(conversation.id),
        {},
        leaves=True,
    )


def plan_rename(db: SessionDB, conversation: Conversation, title: str) -> Step:
    """Plan a rename. An empty title removes the title. Raise an error if the title is invalid."""
    new_title = db.sanitize_title(title)
    renamed = conversation._replace(title=new_title)
    return Step(
        f"Renamed to {renamed.short_name}" if new_title else "Removed the title",
        conversation,
        lambda: db.set_session_title(conversation.id, new_title),
        lambda: db.set_session_title(conversation.id, conversation.title),
        {"title": new_title},
    )


class Changes:
    def __init__(self, browser: Browser, db: SessionDB) -> None:
        self._browser, self._db = browser, db
        self._undos: list[tuple[Step, int]] = []
        """The changes made, each with its position in the list."""
        self._lock = asyncio.Lock()

    async def apply(self, plan: Callable[[SessionDB, Conversation], Step]) -> None:
        await self._browser.wait_until_settled()
        conversation, index = self._browser.list.current, self._browser.list.cursor
        if conversation is None:
            return
        step = plan(self._db, conversation)
        self._show(step)
        async with self._lock:
            try:
                is_there = await asyncio.to_thread(step.do)
            except BaseException:
                self._browser.reload(index, conversation)
                raise
            self._report(step, index, is_there)

    async def rename(self, conversation: Conversation, title: str) -> None:
        """Rename a conversation. An invalid title raises an error, and the question stays open."""
        step = plan_rename(self._db, conversation, title)
        async with self._lock:
            is_there = await asyncio.to_thread(step.do)
            self._browser.close_question()
            self._show(step)
            self._report(step, self._browser.list.cursor, is_there)

    async def undo(self) -> None:
        async with self._lock:
            if not self._undos:
                self._browser.status.show_message("There is nothing to undo")
                return
            step, index = self._undos.pop()
            if not await asyncio.to_thread(step.undo):
                self._browser.report_gone(step.conversation)
                return
            self._browser.status.show_message(f"Undone: {step.summary}")
            self._browser.reload(index, step.conversation)

    def _show(self, step: Step) -> None:
        browser = self._browser
        if step.leaves and not (browser.view.archived and step.changes):
            browser.list.drop(step.conversation)
        else:
            browser.list.change(step.conversation, **step.changes)

    def _report(self, step: Step, index: int, is_there: object) -> None:
        if not is_there:
            self._browser.report_gone(step.conversation)
            return
        self._undos = [*self._undos, (step, index)][-MOST_UNDOS:]
        self._browser.status.show_message(f"{step.summary} · ^Z to undo")
        if step.leaves:
            self._browser.reload()  # the counts have changed too


class ConversationGone(HermesError):
    pass


class Exports:
    """The running export. Only one can run at a time."""

    def __init__(self, browser: Browser, db: SessionDB) -> None:
        self._browser, self._db = browser, db
        self._stop: threading.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._stop is not None

    def cancel(self) -> None:
        if self._stop is not None:
            self._stop.set()

    async def write(self, conversation: Conversation, name: str) -> None:
        """Write the conversation to a file or into a folder. If that fails, the question stays open."""
        target = Path(name).expanduser().absolute()
        options = Options(_choose_format(target))
        self._stop = threading.Event()
        self._browser.status.show_message(f"Exporting {conversation.short_name} …")
        try:
            result = await write_in_thread(
                lambda: self._plan(conversation),
                options,
                Destination(target, self._db.db_path),
                report=lambda progress: self._show(conversation, progress),
                stop=self._stop,
            )
        except ExportCancelled:
            self._browser.status.show_message(f"Stopped; {conversation.short_name} was not exported")
            return
        except ConversationGone:
            self._browser.close_question()
            self._browser.report_gone(conversation)
            return
        finally:
            self._stop = None
        self._browser.close_question()
        kept = "".join(f", the previous export is {backup.name}" for backup in result.backups)
        self._browser.status.show_message(f"Exported {conversation.short_name} to {result.files[0]}{kept}")

    def _plan(self, conversation: Conversation) -> Plan:
        plan = plan_conversation(self._db, conversation.id)
        if not plan.conversations:
            raise ConversationGone
        return plan

    def _show(self, conversation: Conversation, progress: Progress) -> None:
        share = f"{min(progress.done / progress.total, 1):.0%}" if progress.total else "…"
        self._browser.status.show_message(f"Exporting {conversation.short_name} {share} · Esc stops")


def suggest_file_name(conversation: Conversation) -> str:
    """Suggest a file in the current folder, named after the conversation."""
    letters = "".join(sign if sign.isalnum() else " " for sign in conversation.title or "")
    return f"{'-'.join(letters.split())[:60] or conversation.id}.md"


def _choose_format(target: Path) -> Format:
    name = "md" if target.is_dir() else ENDINGS.get(target.suffix.lower())
    if name is None:
        raise OutputRefused("end the name in .jsonl, .md or .html to choose the format")
    return FORMATS[name]
