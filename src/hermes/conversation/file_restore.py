"""Restores the files that the tools edited in undone turns. If the turns are brought back, makes the edits again.
A file is changed only if its current content was written by the tools in these turns. If anybody else changed the
file, after the edits or between them, it is not changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes.agent.edit_journal import NO_FILE, Edit, EditJournal, locate_folder, read_state
from hermes.agent.subagents import list_child_sessions
from hermes.agent.tool import ToolFailed, find_conversation_root

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore


class Refusal(StrEnum):
    """The reason why a file cannot be restored."""

    CHANGED_SINCE = "changed since"
    CHANGED_BETWEEN = "changed by someone else between the edits"
    NOT_KEPT = "its old content was not kept"
    FAILED = "it cannot be written"


class FileChange(NamedTuple):
    """The planned change of one file: its content from before the edits is written back."""

    path: Path
    is_deletion: bool
    """Whether restoring deletes the file, because it did not exist before the edits."""
    edit: Edit
    """The first of the edits of the file. The content from before this edit is restored."""
    current: str
    """The digest of the file's content at the time when the plan was made."""


class RefusedFile(NamedTuple):
    path: Path
    reason: Refusal


class RestorePlan(NamedTuple):
    changes: Sequence[FileChange]
    refused: Sequence[RefusedFile]
    edits: Sequence[Edit]
    """The edits that the plan was made from."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.refused)


class RestoredFiles(NamedTuple):
    """What happened to each file of a restore plan."""

    restored: Sequence[Path] = ()
    deleted: Sequence[Path] = ()
    kept: Sequence[Path] = ()
    """Files that were not restored, because the person declined."""
    refused: Sequence[RefusedFile] = ()


class FileRestorer:
    """Restores the files of one conversation. All methods read files, so call them in a thread."""

    def __init__(self, journal: EditJournal, store: AnyStore, session_id: str) -> None:
        self._journal, self._store, self._session_id = journal, store, session_id
        self._folder = locate_folder(store)

    def plan_undo(self, since: float) -> RestorePlan:
        """Return the plan to restore the files that tools edited in this conversation at the time `since` or later."""
        edits = self._journal.list_edits(self._folder, self._list_conversations())
        return self._plan([edit for edit in edits if edit.undoes is None and edit.at >= since])

    def plan_redo(self, message_ids: Collection[int]) -> RestorePlan:
        """Return the plan to repeat the file edits that were reverted when the messages `message_ids` were undone."""
        edits = self._journal.list_edits(self._folder, self._list_conversations())
        return self._plan([edit for edit in edits if edit.undoes in message_ids])

    def restore(self, plan: RestorePlan, undoes: int | None = None) -> RestoredFiles:
        """Change the files of a plan, and return what happened to each. `undoes` is the id of the message that is being
        undone; None for a redo."""
        restored, deleted, refused = list[Path](), list[Path](), list(plan.refused)
        for change in plan.changes:
            problem = self._restore_file(change, undoes)
            if problem is not None:
                refused.append(RefusedFile(change.path, problem))
            else:
                (deleted if change.is_deletion else restored).append(change.path)
        return RestoredFiles(restored, deleted, refused=refused)

    def forget(self, plan: RestorePlan) -> None:
        """Remove the edits on which a plan is based from the journal of edits."""
        self._journal.remove(self._folder, plan.edits)

    def _list_conversations(self) -> list[str]:
        """Return the ids of this conversation and of the conversations of its subagents. A subagent's edits belong to
        the turn that started the subagent."""
        found = [find_conversation_root(self._store, self._session_id)]
        for conversation in found:
            found += [child.root_id or child.id for child in list_child_sessions(self._store, conversation)]
        return found

    def _plan(self, edits: Sequence[Edit]) -> RestorePlan:
        changes, refused = list[FileChange](), list[RefusedFile]()
        for path in dict.fromkeys(edit.path for edit in edits):
            planned = self._plan_file([edit for edit in edits if edit.path == path])
            if isinstance(planned, FileChange):
                changes.append(planned)
            elif planned is not None:
                refused.append(RefusedFile(path, planned))
        return RestorePlan(changes, refused, edits)

    def _plan_file(self, edits: Sequence[Edit]) -> FileChange | Refusal | None:
        """Return the planned change of one file, or the reason why it cannot be restored. `edits` are the edits of this
        file, oldest first. Return None if the file already has its content from before the edits."""
        first, current = edits[0], read_state(edits[0].path)
        if current.digest == first.before:
            return None
        known = {first.before}
        for edit in edits:
            if edit.before not in known:
                return Refusal.CHANGED_BETWEEN
            known.add(edit.after)
        if current.digest not in known:
            return Refusal.CHANGED_SINCE
        is_deletion = first.before == NO_FILE
        if not is_deletion and self._journal.read_before(self._folder, first) is None:
            return Refusal.NOT_KEPT
        return FileChange(first.path, is_deletion, first, current.digest)

    def _restore_file(self, change: FileChange, undoes: int | None) -> Refusal | None:
        from hermes.agent.tools.files import EDITING, delete_file, replace_content

        edit = change.edit
        content = None if change.is_deletion else self._journal.read_before(self._folder, edit)
        if content is None and not change.is_deletion:
            return Refusal.NOT_KEPT
        with EDITING:
            if read_state(change.path).digest != change.current:
                return Refusal.CHANGED_SINCE
            try:
                if undoes is not None:
                    conversation = find_conversation_root(self._store, self._session_id)
                    self._journal.add(self._folder, conversation, change.path, content, undoes)
                if content is None:
                    delete_file(change.path, edit.folders)
                else:  # the mode of an existing file is kept: the edits did not change it
                    replace_content(change.path, content, edit.mode if change.current == NO_FILE else None)
            except (OSError, ToolFailed):
                return Refusal.FAILED
        return None
