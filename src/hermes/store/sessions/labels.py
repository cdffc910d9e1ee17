"""Labels of conversations: pins, archive, tags and workspace.

Pinning and archiving apply to the whole conversation, or with `segment` to one session. Tags belong to the
conversation. They are stored with the first session of the conversation and read from all its sessions, so
that they remain when the family changes. Tags are stored in lower case. They are therefore case-insensitive,
and the spelling of a tag does not reveal that another person uses the same tag.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import LiteralString

from hermes import clock, errors
from hermes.store import derived
from hermes.store.arguments import check_optional_text, require_text
from hermes.store.engine import Access, Reader, Writer
from hermes.store.sessions.titles import make_one_line
from hermes.store.workspace import check_directory, find_workspace

MAX_TAG_LENGTH = 50

LIVE_ROOT = "SELECT root_id FROM sessions WHERE id = ? AND trashed_at IS NULL"
PIN_ONE = "UPDATE sessions SET pinned_at = coalesce(pinned_at, ?) WHERE id = ?"
PIN_ALL = "UPDATE sessions SET pinned_at = coalesce(pinned_at, ?) WHERE root_id = ?"
UNPIN_ONE = "UPDATE sessions SET pinned_at = NULL WHERE id = ?"
UNPIN_ALL = "UPDATE sessions SET pinned_at = NULL WHERE root_id = ?"
ARCHIVE_ONE = "UPDATE sessions SET archived = ? WHERE id = ?"
ARCHIVE_ALL = "UPDATE sessions SET archived = ? WHERE root_id = ?"
SET_WORKSPACE = """UPDATE sessions SET workspace = ?, cwd = ?, git_branch = ?
    WHERE id = ? AND trashed_at IS NULL"""

TAGS_OF = """SELECT DISTINCT t.tag FROM sessions s JOIN tags t ON t.session_id = s.id
    WHERE s.root_id = ? ORDER BY t.tag"""
ADD_TAG = "INSERT INTO tags (session_id, tag) VALUES (?, ?) ON CONFLICT DO NOTHING"
REMOVE_TAG = (
    """DELETE FROM tags WHERE session_id IN (SELECT id FROM sessions WHERE root_id = ?) AND tag = ?"""
)
ALL_TAGS = """SELECT t.tag, count(DISTINCT s.root_id) FROM tags t JOIN sessions s ON s.id = t.session_id
    WHERE s.trashed_at IS NULL GROUP BY t.tag ORDER BY count(DISTINCT s.root_id) DESC, t.tag"""


class SessionLabels:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def pin(self, session_id: str, pinned: bool = True, segment: bool = False) -> bool:
        """Pin a conversation, so that it is never pruned. With `pinned=False`, unpin it. With `segment`,
        change only this session. Return whether the session exists."""
        at = (clock.now(),) if pinned else ()

        def work(writer: Writer) -> bool:
            root = _find_root(writer, session_id)
            if root is None:
                return False
            if segment:
                writer.run(PIN_ONE if pinned else UNPIN_ONE, *at, session_id)
            else:
                writer.run(PIN_ALL if pinned else UNPIN_ALL, *at, root)
            return True

        return self._engine.write(work, share=False)

    def archive(self, session_id: str, archived: bool, segment: bool = False) -> bool:
        """Archive a conversation, which hides it from lists for people. With `archived=False`, unarchive it.
        With `segment`, change only this session. Return whether the session exists."""
        flag = int(bool(archived))

        def work(writer: Writer) -> bool:
            root = _find_root(writer, session_id)
            if root is None:
                return False
            if segment:
                writer.run(ARCHIVE_ONE, flag, session_id)
            else:
                writer.run(ARCHIVE_ALL, flag, root)
            return True

        return self._engine.write(work, share=False)

    def set_workspace(self, session_id: str, cwd: Path | str, git_branch: str | None = None) -> bool:
        """Record the directory of a session and the workspace that contains it. Return whether the session
        exists."""
        directory = check_directory("cwd", cwd)
        place = (
            str(find_workspace(directory)),
            str(directory),
            check_optional_text("git_branch", git_branch),
        )
        return self._engine.write(lambda writer: writer.run(SET_WORKSPACE, *place, session_id)) > 0

    def add_tags(self, session_id: str, *tags: str) -> list[str]:
        """Add tags to a conversation. Return all its tags."""
        return self._change_tags(ADD_TAG, session_id, tags)

    def remove_tags(self, session_id: str, *tags: str) -> list[str]:
        """Remove tags from a conversation. Return its remaining tags."""
        return self._change_tags(REMOVE_TAG, session_id, tags)

    def _change_tags(self, sql: LiteralString, session_id: str, tags: tuple[str, ...]) -> list[str]:
        named = [clean_tag(tag) for tag in tags]

        def work(writer: Writer) -> list[str]:
            root = _find_root(writer, session_id)
            if root is None:
                raise errors.make_error(errors.UnknownSession, f"session {session_id!r} does not exist")
            for tag in named:
                writer.run(sql, root, tag)
            return _read_tags(writer, root)

        return self._engine.write(work, share=False)

    def list_tags(self, session_id: str) -> list[str]:
        with self._engine.read(settled=True) as reader:
            root = reader.value(LIVE_ROOT, session_id)
            return [] if root is None else _read_tags(reader, root)

    def count_tags(self) -> list[tuple[str, int]]:
        """Return each tag with the number of conversations that have it, most used first."""
        with self._engine.read(settled=True) as reader:
            return [(tag, count) for tag, count in reader.rows(ALL_TAGS)]


def clean_tag(tag: object) -> str:
    text = unicodedata.normalize("NFC", make_one_line(require_text("tag", tag)).casefold())
    if not text:
        raise errors.make_error(errors.InvalidArgument, "a tag must not be empty")
    if len(text) > MAX_TAG_LENGTH:
        raise errors.make_error(
            errors.InvalidArgument, f"a tag can have at most {MAX_TAG_LENGTH} characters, got {len(text)}"
        )
    return text


def _read_tags(reader: Reader, root: str) -> list[str]:
    return [row[0] for row in reader.rows(TAGS_OF, root)]


def _find_root(writer: Writer, session_id: str) -> str | None:
    """Bring the derived columns up to date, and return the root of a session's conversation. Return None if
    the session does not exist or is in the trash."""
    derived.settle(writer)
    root: str | None = writer.value(LIVE_ROOT, session_id)
    return root
