"""Files beside a store that belong to single sessions: transcripts, request dumps, saved conversations, and
the old contents of files that an agent edited."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from hermes.store.content import from_json
from hermes.store.engine import Access
from hermes.store.sessions.sessions import EXISTS

SAVED = "saved"
"""The folder of conversations that a person saved from a chat."""
EDITS = "edits"
"""The folder for the old contents of files that an agent edited. It has a folder for each conversation."""


def locate_edits(folder: Path, conversation: str) -> Path:
    """Return the folder with the old contents of the files that an agent edited in a conversation. It is below
    `folder`. Its name is a hash of the conversation's id, because ids are never used as paths."""
    return folder / EDITS / sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def remove_files(engine: Access, folder: Path, session_ids: Collection[str]) -> None:
    """Remove the transcripts, the request dumps and the old contents of edited files that belong to deleted
    sessions. A session id is never used as a path or as a pattern."""
    if not session_ids:
        return
    for session_id in session_ids:
        for name in (f"{session_id}.json", f"{session_id}.jsonl", f"session_{session_id}.json"):
            is_file = Path(name).name == name and "\0" not in name and name != "sessions.json"
            if is_file and not _is_of_other_session(engine, name):
                _remove(folder / name)
        shutil.rmtree(locate_edits(folder, session_id), ignore_errors=True)
    with suppress(OSError):
        for file in folder.iterdir():
            if file.match("request_dump_*.json") and _is_dump_of(engine, file.name, session_ids):
                _remove(file)


def _is_of_other_session(engine: Access, name: str) -> bool:
    """Return whether the file `name`, which could belong to a deleted session, is the file of another session
    that exists.

    For example, `session_a.json` can be the file of the session `a` or of the session `session_a`.
    """
    other = name.removeprefix("session_").removesuffix(".json")
    if f"session_{other}.json" != name:
        return False
    with engine.read() as reader:
        return reader.value(EXISTS, other) is not None


def remove_saved(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if Path(name).name == name:
            _remove(folder / SAVED / name)


def find_saved(folder: Path, session_ids: Collection[str]) -> list[str]:
    """Return the file names of the conversations saved below `folder` whose session id is one of `session_ids`.

    Other files are left out, even if they contain the same words, because the words can come from another
    conversation.
    """
    return [
        file.name
        for file in sorted((folder / SAVED).glob("*.json"))
        if not file.is_symlink() and _read_session_id(file) in session_ids
    ]


def _read_session_id(file: Path) -> str | None:
    try:
        saved = from_json(file.read_text(encoding="utf-8"), None)
    except (OSError, UnicodeDecodeError):
        return None
    named = saved.get("session_id", saved.get("id")) if isinstance(saved, dict) else None
    return named if isinstance(named, str) else None


def _is_dump_of(engine: Access, name: str, session_ids: Collection[str]) -> bool:
    """Return whether the request dump with the file name `name` belongs to one of the deleted sessions
    `session_ids`. If the name begins with the ids of several sessions, deleted or existing, the dump belongs to
    the session with the longest id."""
    rest = name.removeprefix("request_dump_")
    while "_" in rest:
        rest = rest.rpartition("_")[0]
        if rest in session_ids:
            return True
        with engine.read() as reader:
            if reader.value(EXISTS, rest):
                return False
    return False


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()
