"""Actions on the marked conversations, or on the one under the cursor: pin, archive, delete, tag, rename and
export. All except the export can be undone.

Changes are stored one after the other, in the order of the keys. Even if the store is slow, an action applies
to the conversations that were marked or under the cursor when the key was pressed. The list shows a change at
once, so a key that is pressed twice acts on two conversations. If the change fails, the list is loaded again.

An export is written in a thread, and the status line shows its progress. Esc cancels the export, and no file
is left. The suffix of the file name selects the format. If the file is an earlier export, the new export
replaces it, and the earlier one is kept as `FILE~`. Any other existing file is never replaced.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.browser.rows import Conversation, name_several
from hermes.errors import ExportCancelled, HermesError, OutputRefused, UnknownSession
from hermes.export import plan as export_plan
from hermes.export.background import write_in_thread
from hermes.export.formats import FORMATS, Format
from hermes.export.writer import Destination, Options, Progress
from hermes.store.sessions.labels import clean_tag

if TYPE_CHECKING:
    from hermes.browser.app import Browser
    from hermes.db.session_db import SessionDB

MOST_UNDOS = 100
MOST_UNASKED = 20
"""The number of conversations above which deleting or archiving needs a confirmation."""
YES = frozenset(("y", "yes"))
PROGRESS_S = 0.3
"""Seconds between two progress messages."""
ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".md": "md", ".markdown": "md", ".html": "html"}


class Step(NamedTuple):
    """A change to one or more conversations. It is undone as a whole."""

    summary: str
    """The beginning of the message after the change, such as `Deleted`."""
    targets: tuple[Conversation, ...]
    do: Callable[[Conversation], object]
    undo: Callable[[Conversation], object]
    """`do` and `undo` change one conversation. They block the thread. They return a false value if the
    conversation no longer exists."""
    change: Callable[[Conversation], dict[str, Any]] = lambda _: {}
    """Returns the fields of the conversation's row that the step changes, with their new values."""
    leaves: bool = False
    """Whether the change moves the conversations to the trash or the archive, so that they disappear from the
    list."""
    is_sentence: bool = False
    """Whether `summary` is a complete message. If False, the names of the conversations are added to it."""
    verb: str = ""
    """The verb of the confirmation question, such as `Delete`. Empty if the step needs no confirmation."""

    @property
    def description(self) -> str:
        return self.summary if self.is_sentence else f"{self.summary} {name_several(self.targets)}"

    @property
    def question(self) -> str | None:
        """The question to ask the user before the change is made. None if no question is needed."""
        if not self.verb or len(self.targets) <= MOST_UNASKED:
            return None
        return f"{self.verb} {name_several(self.targets)}? [y/N]"


def plan_pin(db: SessionDB, conversations: Sequence[Conversation]) -> Step:
    """Return the change that pins those of the conversations that are not pinned. If all are pinned, the change
    unpins them."""
    pinned = not all(conversation.pinned for conversation in conversations)
    return Step(
        "Pinned" if pinned else "Unpinned",
        tuple(conversation for conversation in conversations if conversation.pinned != pinned),
        lambda conversation: db.pin_session(conversation.id, pinned),
        lambda conversation: db.pin_session(conversation.id, not pinned),
        lambda _: {"pinned": pinned},
    )


def plan_archive(db: SessionDB, conversations: Sequence[Conversation]) -> Step:
    """Return the change that archives those of the conversations that are not archived. If all are archived,
    the change unarchives them."""
    archived = not all(conversation.archived for conversation in conversations)
    return Step(
        "Archived" if archived else "Unarchived",
        tuple(conversation for conversation in conversations if conversation.archived != archived),
        lambda conversation: db.set_session_archived(conversation.id, archived),
        lambda conversation: db.set_session_archived(conversation.id, not archived),
        lambda _: {"archived": archived},
        leaves=archived,
        verb="Archive" if archived else "Unarchive",
    )


def plan_delete(db: SessionDB, conversations: Sequence[Conversation]) -> Step:
    return Step(
        "Deleted",
        tuple(conversations),
        lambda conversation: db.trash_session(conversation.id),
        lambda conversation: db.restore_session(conversation.id),
        leaves=True,
        verb="Delete",
    )


def plan_rename(db: SessionDB, conversation: Conversation, title: str) -> Step:
    """Return the change that renames a conversation. An empty title removes its title. Raise an error if the
    title is invalid."""
    new_title = db.sanitize_title(title)
    renamed = conversation._replace(title=new_title)
    return Step(
        f"Renamed to {renamed.short_name}" if new_title else "Removed the title",
        (conversation,),
        lambda conversation: db.set_session_title(conversation.id, new_title),
        lambda conversation: db.set_session_title(conversation.id, conversation.title),
        lambda _: {"title": new_title},
        is_sentence=True,
    )


def list_common_tags(conversations: Sequence[Conversation]) -> list[str]:
    """Return the tags that all of the conversations have."""
    return sorted(set.intersection(*(set(conversation.tags) for conversation in conversations)))


def plan_tags(db: SessionDB, conversations: Sequence[Conversation], line: str) -> Step:
    """Return the change that sets the tags of several conversations. `line` contains the new tags as typed.
    They replace the tags that all of the conversations have in common. The other tags of each conversation
    stay.

    Raise an error if a tag is invalid.
    """
    common = set(list_common_tags(conversations))
    wanted = {clean_tag(tag) for tag in line.replace("#", "").split(",") if tag.strip()}

    def replace(conversation: Conversation, removed: set[str], added: set[str]) -> bool:
        try:
            db.remove_tags(conversation.id, *removed)
            db.add_tags(conversation.id, *added)
        except UnknownSession:
            return False
        return True

    def change(conversation: Conversation) -> dict[str, Any]:
        return {"tags": tuple(sorted({*conversation.tags, *wanted} - (common - wanted)))}

    return Step(
        "Tagged" if wanted - common else "Changed the tags of",
        tuple(conversations),
        lambda conversation: replace(conversation, common - wanted, wanted - set(conversation.tags)),
        lambda conversation: replace(conversation, wanted - set(conversation.tags), common - wanted),
        change,
    )


class Changes:
    def __init__(self, browser: Browser, db: SessionDB) -> None:
        self._browser, self._db = browser, db
        self._undos: list[tuple[Step, int]] = []
        """The changes that can be undone, each with the cursor position at the time of the change."""
        self._leaving: list[Step] = []
        """The running changes that remove conversations from the list."""
        self._lock = asyncio.Lock()
        self._stop = threading.Event()

    def apply(self, step: Step) -> None:
        """Show a change in the list at once, and store it in the background."""
        index = self._browser.list.cursor
        self._show(step)
        self._browser.run_worker(self._store(step, index), group="change", exit_on_error=False)

    async def answer(self, step: Step) -> None:
        """Store a change whose text the user typed as the answer to a question, then close the question. If
        an error occurs, the question stays open."""
        async with self._lock:
            done = await self._run(step, self._browser.list.cursor)
            self._browser.close_question()
            self._show(step)
            self._report(step, done)

    async def undo(self) -> None:
        async with self._lock:
            if not self._undos:
                self._browser.status.show_message("There is nothing to undo")
                return
            step, index = self._undos.pop()
            done = await self._run_in_thread(step.undo, step, [])
            if gone := _find_missing(step.targets, done):
                self._browser.report_gone(gone)
                return
            self._browser.status.show_message(f"Undone: {step.description}")
            self._browser.reload(index, step.targets[0])

    async def finish(self) -> None:
        """Wait until all changes that the user has made in the browser are stored."""
        async with self._lock:  # waiters get the lock in order, so all earlier changes are stored
            pass

    @property
    def is_storing(self) -> bool:
        return self._lock.locked()

    @property
    def leaving(self) -> set[str]:
        """The ids of the first sessions of conversations that a running change removes from the list. The
        store may still list them."""
        return {conversation.root_id for step in self._leaving for conversation in step.targets}

    def stop(self) -> None:
        """Stop the running change. Conversations that it has not reached yet are not changed."""
        self._stop.set()

    async def _store(self, step: Step, index: int) -> None:
        async with self._lock:
            try:
                done = await self._run(step, index)
            except BaseException:
                self._forget(step)
                self._browser.reload(index, step.targets[0])
                raise
            self._forget(step)
            self._report(step, done)

    async def _run(self, step: Step, index: int) -> Sequence[Conversation]:
        """Make the change `step` to each of its conversations, and return the changed ones. If an error occurs,
        the changes made before it can still be undone. `index` is the position of the cursor before the change."""
        done: list[Conversation] = []
        try:
            return await self._run_in_thread(step.do, step, done)
        finally:
            if done:
                undo = (step._replace(targets=tuple(done)), index)
                self._undos = [*self._undos, undo][-MOST_UNDOS:]

    async def _run_in_thread(
        self, do: Callable[[Conversation], object], step: Step, done: list[Conversation]
    ) -> Sequence[Conversation]:
        """Change each conversation in a thread, and add the changed ones to `done`. If this takes long, show
        the progress."""
        running = asyncio.ensure_future(asyncio.to_thread(_run_each, do, step.targets, done, self._stop))
        while not (await asyncio.wait([running], timeout=PROGRESS_S))[0]:
            if len(step.targets) > 1:
                self._browser.status.show_message(f"{len(done):,} of {name_several(step.targets)} …")
        return running.result()

    def _show(self, step: Step) -> None:
        browser = self._browser
        changes = {conversation.root_id: step.change(conversation) for conversation in step.targets}
        if step.leaves and not (browser.view.archived and any(changes.values())):
            self._leaving.append(step)
            browser.list.drop(changes.keys())
        else:
            browser.list.change(changes)

    def _forget(self, step: Step) -> None:
        if step in self._leaving:
            self._leaving.remove(step)

    def _report(self, step: Step, done: Sequence[Conversation]) -> None:
        if gone := _find_missing(step.targets, done):
            self._browser.report_gone(gone)
            return
        self._browser.status.show_message(f"{step.description} · ^Z to undo")
        if step.leaves:
            self._browser.reload()  # the counts have changed too


def _find_missing(targets: Sequence[Conversation], done: Sequence[Conversation]) -> list[Conversation]:
    changed = {conversation.root_id for conversation in done}
    return [conversation for conversation in targets if conversation.root_id not in changed]


def _run_each(
    do: Callable[[Conversation], object],
    targets: Sequence[Conversation],
    done: list[Conversation],
    stop: threading.Event,
) -> Sequence[Conversation]:
    """Call `do` with each of the conversations `targets`, until `stop` is set. Add each conversation that was
    changed to `done`. A conversation that no longer exists is not added. Return `done`."""
    for conversation in targets:
        if not stop.is_set() and do(conversation):
            done.append(conversation)  # noqa: PERF401 -- after an error, these were changed
    return done


class ConversationGone(HermesError):
    pass


class Exports:
    """Runs the exports of the browser. Only one export can run at a time."""

    def __init__(self, browser: Browser, db: SessionDB) -> None:
        self._browser, self._db = browser, db
        self._stop: threading.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._stop is not None

    def cancel(self) -> None:
        if self._stop is not None:
            self._stop.set()

    async def write(self, conversations: Sequence[Conversation], name: str) -> None:
        """Write the conversations to a file or into a folder. If the export fails, the question for the file
        name stays open."""
        names = name_several(conversations)
        target = Path(name).expanduser().absolute()
        options = Options(_choose_format(target))
        self._stop = threading.Event()
        self._browser.status.show_message(f"Exporting {names} …")
        try:
            result = await write_in_thread(
                lambda: self._plan(conversations),
                options,
                Destination(target, self._db.db_path),
                report=lambda progress: self._show(names, progress),
                stop=self._stop,
            )
        except ExportCancelled:
            verb = "was" if len(conversations) == 1 else "were"
            self._browser.status.show_message(f"Stopped; {names} {verb} not exported")
            return
        except ConversationGone:
            self._browser.close_question()
            self._browser.report_gone(conversations)
            return
        finally:
            self._stop = None
        self._browser.close_question()
        kept = "".join(f", the previous export is {backup.name}" for backup in result.backups)
        place = result.files[0] if len(result.files) == 1 else result.files[0].parent
        self._browser.status.show_message(f"Exported {names} to {place}{kept}")

    def _plan(self, conversations: Sequence[Conversation]) -> export_plan.Plan:
        plans = [export_plan.plan_conversation(self._db, conversation.id) for conversation in conversations]
        found = [conversation for plan in plans for conversation in plan.conversations]
        if not found:
            raise ConversationGone
        return export_plan.Plan(found, self._db.export_session)

    def _show(self, names: str, progress: Progress) -> None:
        share = f"{min(progress.done / progress.total, 1):.0%}" if progress.total else "…"
        self._browser.status.show_message(f"Exporting {names} {share} · Esc stops")


def suggest_file_name(conversations: Sequence[Conversation]) -> str:
    """Return a file name for an export of the conversations, in the current folder. For one conversation, the
    file is named after it. The result is the default answer to the question for the file name."""
    if len(conversations) > 1:
        return f"{len(conversations)}-conversations.md"
    (conversation,) = conversations
    letters = "".join(sign if sign.isalnum() else " " for sign in conversation.title or "")
    return f"{'-'.join(letters.split())[:60] or conversation.id}.md"


def _choose_format(target: Path) -> Format:
    name = "md" if target.is_dir() else ENDINGS.get(target.suffix.lower())
    if name is None:
        raise OutputRefused("end the name in .jsonl, .md or .html to choose the format")
    return FORMATS[name]
