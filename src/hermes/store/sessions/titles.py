"""Titles: unique among the sessions of one owner, on one line, and numbered along a conversation."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from hermes import clock, errors
from hermes.store.arguments import require_text
from hermes.store.engine import Access, Reader, Writer
from hermes.store.people import LOCAL
from hermes.store.sessions.lineage import find_tip, is_ancestor
from hermes.store.sessions.sessions import SELECT_ROW
from hermes.store.sessions.title_notes import FORGET_REQUEST, claim_request, note_former
from hermes.text import replace_surrogates

MAX_TITLE_LENGTH = 100

# `re` compiles these on first use, because opening a store and listing need none of them.
_CONTROLS = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
_INVISIBLE = "[\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffc\ufff9-\ufffb]"
_JOINER = "\u200d"
_NUMBERED = r"(?s)^(.*?) #(\d{1,9})$"

GET = "SELECT title FROM sessions WHERE id = ? AND trashed_at IS NULL"
OWNER = "SELECT owner, root_id FROM sessions WHERE id = ? AND trashed_at IS NULL"
HELD_BY = "SELECT id, root_id FROM sessions WHERE title = ? AND owner = ? AND id <> ?"
# A session in the trash gets no title, so that the title stays free for other sessions.
SET = "UPDATE sessions SET title = ?, title_by = ? WHERE id = ? AND trashed_at IS NULL"
SET_IF_EMPTY = "UPDATE sessions SET title = ?, title_by = 'auto' WHERE id = ? AND title IS NULL"
IS_UNTITLED = "SELECT 1 FROM sessions WHERE id = ? AND title IS NULL AND trashed_at IS NULL"
# Sorted by owner: sessions of the local machine, then of a person, then of a room. The first match is used, so
# that a caller's own session comes before a shared one.
BY_TITLE = """SELECT id, owner FROM sessions WHERE title = ? AND trashed_at IS NULL AND (? IS NULL OR owner = ?)
    ORDER BY owner, started_at DESC, id DESC LIMIT 1"""
OWNERS_OF = "SELECT DISTINCT owner FROM sessions WHERE title = ? AND trashed_at IS NULL ORDER BY owner"
IN_USE = "SELECT 1 FROM sessions WHERE title = ? AND owner = ? AND trashed_at IS NULL"
# The range of titles that start with `title #`, as the reference selects them. Used for rows without a
# recorded relation.
NUMBERED = """SELECT id, title, relation, owner FROM sessions
    WHERE lower(title) >= lower(?) AND lower(title) < lower(?) AND title IS NOT NULL AND trashed_at IS NULL
    ORDER BY owner, started_at DESC, id DESC"""
CONTINUED = """SELECT 1 FROM sessions WHERE parent_session_id = ? AND relation = 'compression'
    AND trashed_at IS NULL LIMIT 1"""


def sanitize_title(title: str | None) -> str | None:
    """Return the title as it is stored: one line without invisible characters. None if nothing remains.

    Raise `InvalidTitle` if the title is not text or is too long.
    """
    if not title:
        return None
    if not isinstance(title, str):
        raise errors.InvalidTitle(f"a title must be text, got {type(title).__name__}")
    text = make_one_line(title)
    if not text:
        return None
    if len(text) > MAX_TITLE_LENGTH:
        raise errors.InvalidTitle(f"Title too long ({len(text)} chars, max {MAX_TITLE_LENGTH})")
    return text


def make_one_line(text: str) -> str:
    """Return the text on one line, trimmed and without invisible characters."""
    text = re.sub(_INVISIBLE, "", re.sub(_CONTROLS, "", replace_surrogates(text)))
    if _JOINER in text:
        text = _keep_needed_joiners(text)
    return " ".join(text.split())


def _keep_needed_joiners(text: str) -> str:
    """Remove zero-width joiners, except those within an emoji or within an Arabic or Indic cluster."""
    return "".join(
        char
        for at, char in enumerate(text)
        if char != _JOINER
        or (0 < at < len(text) - 1 and _is_joinable(text[at - 1]) and _is_joinable(text[at + 1]))
    )


def _is_joinable(char: str) -> bool:
    if unicodedata.category(char) in ("So", "Sk", "Mn", "Mc") or char == "\ufe0f":
        return True
    point = ord(char)
    return 0x0600 <= point <= 0x08FF or 0x0900 <= point <= 0x0DFF or 0xFB50 <= point <= 0xFEFF


def split_number(title: str) -> tuple[str, int | None]:
    """Split a title into (base, number): `my project #3` gives (`my project`, 3). The number is None if the
    title has none."""
    match = re.match(_NUMBERED, title)
    return (match[1], int(match[2])) if match else (title, None)


def format_numbered(base: str, number: int) -> str:
    """Return the base with a continuation number. If the title would be too long, the base is shortened."""
    suffix = f" #{number}"
    return base[: MAX_TITLE_LENGTH - len(suffix)].rstrip() + suffix


class Titles:
    def __init__(self, engine: Access) -> None:
        self._engine = engine

    def set(self, session_id: str, title: str | None) -> bool:
        """Set the title of a session. An empty title clears it. Return whether the session exists."""
        clean = sanitize_title(title)

        def work(writer: Writer) -> bool:
            if clean is not None and not self._is_free_for(writer, session_id, clean):
                return False
            if clean is None:
                return clear_title(writer, session_id)
            note_former(writer, session_id, writer.value(GET, session_id), clean)
            return writer.run(SET, clean, "person", session_id) > 0

        return self._engine.write(work)

    def _is_free_for(self, writer: Writer, session_id: str, title: str) -> bool:
        """Make `title` available for a session, and return True. Return False if the session does not exist.
        Raise `InvalidTitle` if another session of the same owner uses the title.

        If that other session is an earlier session of the same conversation, its title is cleared instead.
        """
        place = writer.row(OWNER, session_id)
        if place is None:
            # As in the reference, a title in use is an error even for a session that does not exist.
            holder = writer.row(HELD_BY, title, "", session_id)
            if holder is None:
                return False
        else:
            holder = writer.row(HELD_BY, title, place[0], session_id)
            if holder is None or move_title(writer, title, holder, session_id, place[1]):
                return True
        raise errors.InvalidTitle(f"Title '{title}' is already in use by session {holder[0]}")

    def set_if_empty(self, session_id: str, title: str) -> str | None:
        """Set an automatic title if the session has no title. Return the title that was set, or None if none
        was set."""
        clean = sanitize_title(title)
        if clean is None:
            return None

        def work(writer: Writer) -> str | None:
            place = writer.row(OWNER, session_id)
            if place is None:
                return None
            chosen = find_free_title(writer, clean, place[0], session_id)
            writer.run(FORGET_REQUEST, session_id)
            return chosen if writer.run(SET_IF_EMPTY, chosen, session_id) else None

        return self._engine.write(work)

    def claim(self, session_id: str, seconds: float, most_times: int) -> bool:
        """Claim the task of generating a title. Return whether the caller should ask a model for a title.

        Return False if the session has a title, if another process holds the claim, or after `most_times`
        attempts. The claim expires after `seconds`. Another process can then try, if the first one has ended
        without a title.
        """
        now = clock.now()

        def work(writer: Writer) -> bool:
            if writer.row(IS_UNTITLED, session_id) is None:
                return False
            return claim_request(writer, session_id, now, seconds, most_times)

        return self._engine.write(work)

    def get(self, session_id: str) -> str | None:
        with self._engine.read() as reader:
            return reader.value(GET, session_id)  # type: ignore[no-any-return]

    def find_session(self, title: str) -> dict[str, Any] | None:
        with self._engine.read(settled=True) as reader:
            row = reader.value(BY_TITLE, title, None, None)
            return None if row is None else reader.dict(SELECT_ROW, row)

    def list_owners(self, title: str) -> list[str]:
        """Return the owners of sessions with this title. If there are none, return the owners of sessions
        titled `title #N`."""
        with self._engine.read(settled=True) as reader:
            exact = [row[0] for row in reader.rows(OWNERS_OF, title)]
            return exact or list(dict.fromkeys(row[3] for row in _list_variants(reader, title)))

    def resolve(self, title: object, owner: str | None = None) -> str | None:
        """Return the id of the session that a title refers to, or None if there is none. With `owner`, only
        the sessions of that owner are considered.

        These sessions are tried in order, as in the reference:

        1. The live session of the conversation, if the session with exactly this title was continued.
        2. The session titled `title #N` that started last. If a session has exactly this title, only sessions
           of its owner without a recorded relation are considered.
        3. The session with exactly this title.
        """
        if not isinstance(title, str) or not title:
            return None
        with self._engine.read(settled=True) as reader:
            exact, holder = reader.row(BY_TITLE, title, owner, owner) or (None, None)
            if exact is not None and reader.value(CONTINUED, exact):
                return find_tip(reader, exact)
            for variant, _title, relation, of in _list_variants(reader, title):
                if owner is not None and of != owner:
                    continue
                if exact is None or (of == holder and relation is None):
                    return find_tip(reader, variant)
            return None if exact is None else str(exact)

    def find_next(self, title: str) -> str:
        base, _ = split_number(require_text("title", title))
        base = base or title
        with self._engine.read() as reader:
            return find_next_title(reader, base)


def move_title(writer: Writer, title: str, holder: tuple[Any, ...], session_id: str, root: str) -> bool:
    """Free a title for the session `session_id`. `holder` is (id, root) of the session that has the title now,
    and `root` is the root of `session_id`. If the holder is an earlier session of the same conversation, clear
    its title and return True. Otherwise return False."""
    holder_id, holder_root = holder
    if holder_root != root or not is_ancestor(writer, holder_id, session_id):
        return False
    return clear_title(writer, holder_id)


def clear_title(writer: Writer, session_id: str) -> bool:
    """Remove the title of a session inside the caller's transaction. Return whether the session exists."""
    note_former(writer, session_id, writer.value(GET, session_id), None)
    return writer.run(SET, None, None, session_id) > 0


def find_free_title(reader: Reader, title: str, owner: str, session_id: str) -> str:
    """Return the title if no other session of the owner uses it, otherwise the first free one of `title (2)`,
    `title (3)` and so on."""
    chosen, number = title, 1
    while reader.row(HELD_BY, chosen, owner, session_id) is not None:
        number += 1
        suffix = f" ({number})"
        chosen = title[: MAX_TITLE_LENGTH - len(suffix)].rstrip() + suffix
    return chosen


def find_next_title(reader: Reader, base: str, owner: str = LOCAL) -> str:
    """Return the next free title in the series of `base`: `base` itself if no session of the owner has a title
    of this series, otherwise `base #N` with a number above the highest in use."""
    highest = 1 if reader.value(IN_USE, base, owner) is not None else 0
    for _id, title, _relation, of in _list_variants(reader, base):
        if of == owner:
            highest = max(highest, split_number(title)[1] or 1)
    if not highest:
        return base
    number = highest + 1
    # Another long title may have been shortened to the same text.
    while reader.value(IN_USE, format_numbered(base, number), owner) is not None:
        number += 1
    return format_numbered(base, number)


def _list_variants(reader: Reader, base: str) -> list[tuple[Any, ...]]:
    return reader.rows(NUMBERED, base + " #", base + " $")
