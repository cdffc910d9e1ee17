"""Files that are kept beside a store for single sessions: transcripts, dumps of requests, saved conversations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes.store.content import from_json, to_json
from hermes.store.engine import Access
from hermes.store.sessions import EXISTS

SAVED = "saved"
"""The folder of conversations that a person saved out of a chat."""


def remove_files(engine: Access, folder: Path, gone: Collection[str]) -> None:
    """Remove transcripts and logs of deleted sessions. An id is never a path here, nor a pattern."""
    if not gone:
        return
    for session_id in gone:
        for name in (f"{session_id}.json", f"{session_id}.jsonl", f"session_{session_id}.json"):
            if Path(name).name == name and "\0" not in name and name != "sessions.json":
                _remove(folder / name)
    with suppress(OSError):
        for file in folder.iterdir():
            if file.match("request_dump_*.json") and _was_of(engine, file.name, gone):
                _remove(file)


def remove_saved(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if Path(name).name == name:
            _remove(folder / SAVED / name)


def saved_of(folder: Path, session_ids: Collection[str], said: Collection[Any]) -> list[str]:
    """Which saved conversations are of these sessions: they name one, or hold nothing but what was said in them."""
    known = set(map(_told, said))
    return [
        file.name
        for file in sorted((folder / SAVED).glob("*.json"))
        if not file.is_symlink() and _is_of(file, session_ids, known)
    ]


def _is_of(file: Path, session_ids: Collection[str], known: Collection[str]) -> bool:
    try:
        told = from_json(file.read_text(encoding="utf-8"), None)
    except (OSError, UnicodeDecodeError):
        return False
    if not isinstance(told, dict):
        return False
    named = told.get("session_id", told.get("id"))
    if isinstance(named, str):
        return named in session_ids
    messages = told.get("messages")
    rows = [row for row in messages if isinstance(row, dict)] if isinstance(messages, list) else []
    contents = [row["content"] for row in rows if row.get("content") and row.get("role") != "system"]
    return bool(contents) and all(_told(content) in known for content in contents)


def _told(content: Any) -> str:
    """What a message says, in one spelling: a model is given text without the blanks around it."""
    return to_json(content.strip() if isinstance(content, str) else content)


def _was_of(engine: Access, name: str, gone: Collection[str]) -> bool:
    """Whether a dump belongs to a deleted session: the longest id that its name begins with decides."""
    rest = name.removeprefix("request_dump_")
    while "_" in rest:
        rest = rest.rpartition("_")[0]
        if rest in gone:
            return True
        with engine.read() as reader:
            if reader.value(EXISTS, rest):
                return False
    return False


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()
