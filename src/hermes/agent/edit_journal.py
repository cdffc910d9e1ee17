"""The journal of file edits: the state of each file before a tool of the agent changed it, for `/undo`.

Each conversation has a folder in `sessions/edits` beside its store. An edit has two files there: the old
content of the edited file, and a description. These files are encrypted if the store is, and deleted with the
conversation. The number, the size and the age of the edits are limited, for each conversation and in total.
The journal of an incognito conversation is in memory.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from hermes import clock, errors, home
from hermes.agent.tool import ToolContext, find_conversation_root
from hermes.logs import get_logger
from hermes.store.engine_choice import sealed_files
from hermes.store.retention.session_files import EDITS, locate_edits

_log = get_logger(__name__)

LARGEST = 10_000_000
"""The maximum size, in bytes, of a file whose old content is kept."""
MOST_EDITS, MOST_BYTES = 200, 50_000_000
"""The maximum number and total size of the edits of one conversation. Beyond these limits the oldest edits
are dropped."""
KEPT_DAYS = 30
MOST_TOTAL_BYTES = 500_000_000
"""The maximum size of the edits of all conversations. Beyond it, the edits of the conversations that have
gone longest without an edit are removed."""
NO_FILE, NOT_A_FILE = "", "not a regular file"
"""Values in place of a digest: `NO_FILE` if the path does not exist, `NOT_A_FILE` if it is not a regular
file."""
ABOUT, BEFORE = ".json", ".before"


class Edit(NamedTuple):
    path: Path
    before: str
    """The digest of the old content; `NO_FILE` if the edit created the file."""
    after: str
    mode: int | None
    """The permissions of the file before the edit."""
    at: float
    has_content: bool
    """Whether the journal has the old content. It has none if the edit created the file, or if the content
    was larger than `LARGEST`."""
    folders: tuple[str, ...] = ()
    """The folders that the edit created, deepest first."""
    undoes: int | None = None
    """For an edit made by an undo: the id of the undone message. None for an edit by a tool."""
    uid: str = ""
    conversation: str = ""


class FileState(NamedTuple):
    digest: str
    content: bytes | None
    mode: int | None


def read_state(path: Path) -> FileState:
    """Return the state of the file with the real path `path`: the hash of its content, its content and its mode.
    Content larger than `LARGEST` is hashed but not returned.

    If a link has replaced the file or a folder above it, the hash is `NOT_A_FILE`.
    """
    if os.path.realpath(path.parent) != str(path.parent):
        return FileState(NOT_A_FILE, None, None)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return FileState(NO_FILE, None, None)
    except OSError:
        return FileState(NOT_A_FILE, None, None)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return FileState(NOT_A_FILE, None, None)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_size > LARGEST:
            digest = sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
            return FileState(digest.hexdigest(), None, mode)
        content = file.read()
        return FileState(make_digest(content), content, mode)


def make_digest(content: bytes | None) -> str:
    return NO_FILE if content is None else sha256(content).hexdigest()


class EditJournal:
    def __init__(self, *, incognito: bool = False) -> None:
        self._memory: dict[str, tuple[Edit, bytes | None]] | None = {} if incognito else None

    def record(self, context: ToolContext, path: Path, text: str) -> None:
        """Record that a tool is about to write `text` to a file. A failure to record is only logged, so that
        the tool can still write the file."""
        try:
            conversation = find_conversation_root(context.db, context.session_id)
            self.add(locate_folder(context.db), conversation, path, text.encode())
        except (OSError, errors.HermesError) as problem:
            _log.warning("the old content of %s is not kept for /undo: %s", path, problem)

    def add(
        self, folder: Path, conversation: str, path: Path, content: bytes | None, undoes: int | None = None
    ) -> None:
        """Record the state of the file at `path`, which is about to get `content` as its new content. If `content` is
        None, the file is about to be deleted."""
        state, after = read_state(path), make_digest(content)
        if state.digest == after:
            return
        edit = Edit(
            path,
            state.digest,
            after,
            state.mode,
            clock.now(),
            state.content is not None,
            tuple(str(parent) for parent in path.parents if not parent.exists()),
            undoes,
            clock.make_uid(),
            conversation,
        )
        if self._memory is not None:
            self._memory[edit.uid] = edit, state.content
            return
        edits = locate_edits(folder, conversation)
        if not edits.exists():
            remove_excess(folder)
        home.make_private_folder(edits.parent)
        home.make_private_folder(edits)
        sealed = sealed_files(folder.parent)
        if state.content is not None:
            sealed.write(edits / f"{edit.uid}{BEFORE}", state.content)
        about = {**edit._asdict(), "path": str(path)}
        sealed.write(edits / f"{edit.uid}{ABOUT}", json.dumps(about).encode())
        _limit(edits)

    def list_edits(self, folder: Path, conversations: Iterable[str]) -> list[Edit]:
        """Return the recorded edits of these conversations, oldest first. `folder` is the folder `sessions` beside
        the store."""
        if self._memory is not None:
            return [edit for edit, _ in self._memory.values()]
        sealed, found = sealed_files(folder.parent), []
        for conversation in conversations:
            for file in sorted(locate_edits(folder, conversation).glob(f"*{ABOUT}")):
                with suppress(OSError, errors.HermesError, ValueError, TypeError):
                    about = json.loads(sealed.read(file))
                    edit = Edit(**about)._replace(
                        path=Path(about["path"]), folders=tuple(about["folders"]), conversation=conversation
                    )
                    found.append(edit)
        return sorted(found, key=lambda edit: edit.uid)

    def read_before(self, folder: Path, edit: Edit) -> bytes | None:
        """Return the content that the edited file had before the edit; None if the journal does not have this content
        or cannot read it."""
        if self._memory is not None:
            return self._memory[edit.uid][1]
        file = locate_edits(folder, edit.conversation) / f"{edit.uid}{BEFORE}"
        try:
            content = sealed_files(folder.parent).read(file)
        except (OSError, errors.HermesError):
            return None
        return content if make_digest(content) == edit.before else None

    def remove(self, folder: Path, edits: Collection[Edit]) -> None:
        for edit in edits:
            if self._memory is not None:
                self._memory.pop(edit.uid, None)
                continue
            for ending in (ABOUT, BEFORE):
                with suppress(OSError):
                    (locate_edits(folder, edit.conversation) / f"{edit.uid}{ending}").unlink()


def locate_folder(store: object) -> Path:
    """Return the folder `sessions` beside the store. It holds the files that belong to single sessions."""
    path = getattr(store, "db_path", None) or home.get_default_db_path()
    return Path(path).parent / "sessions"


def _limit(edits: Path) -> None:
    """Remove the oldest edits from `edits`, the journal folder of one conversation, until the number and the size of
    the edits are within the limits."""
    size, count = 0, 0
    for about in sorted(edits.glob(f"*{ABOUT}"), reverse=True):
        content = about.with_suffix(BEFORE)
        size, count = size + (content.stat().st_size if content.exists() else 0), count + 1
        if count > MOST_EDITS or size > MOST_BYTES:
            about.unlink(missing_ok=True)
            content.unlink(missing_ok=True)


def remove_excess(folder: Path) -> None:
    """Remove old edits from the journals of all conversations. `folder` is the folder `sessions` beside the
    store.

    Remove the edits of each conversation in which no file was edited for `KEPT_DAYS` days. Of the remaining
    conversations, keep the edits of the most recently edited ones, up to `MOST_TOTAL_BYTES` in total.
    """
    cutoff, size = clock.now() - KEPT_DAYS * 86_400, 0
    for changed_at, path in sorted(_list_folders(folder / EDITS), reverse=True):
        size += _measure(path)
        if changed_at < cutoff or size > MOST_TOTAL_BYTES:
            shutil.rmtree(path, ignore_errors=True)


def _list_folders(edits: Path) -> list[tuple[float, str]]:
    """Return the journal folders of all conversations, each with the time of its last change."""
    found = []
    with suppress(OSError), os.scandir(edits) as entries:
        for entry in entries:
            with suppress(OSError):  # another process removes the folder
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return found


def _measure(path: str) -> int:
    size = 0
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with suppress(OSError):
                size += entry.stat(follow_symlinks=False).st_size
    return size
