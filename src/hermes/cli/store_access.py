"""Opens the store of a command, and finds the conversation that the user named."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hermes import home
from hermes.cli.exit_codes import Refused
from hermes.cli.io.output import print_error
from hermes.errors import StoreReadOnly, StoreTooNew

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


def get_store_path(arguments: argparse.Namespace) -> Path:
    return arguments.store or home.get_default_db_path()


def require_store(arguments: argparse.Namespace) -> Path:
    """Return the path of the store. Raise Refused if it does not exist, because only a conversation or an
    import creates a store."""
    path = get_store_path(arguments)
    if path.exists():
        return path
    first, *more = describe_missing_store(arguments)
    raise Refused(first, more)


def describe_missing_store(arguments: argparse.Namespace) -> list[str]:
    """Return the lines which say that the store does not exist. For the store of the home, add a line on how
    to create it."""
    path = get_store_path(arguments)
    lines = [f"there is no store at {path}"]
    if arguments.store is not None:
        return lines
    folder = home.get_hermes_home()
    if os.environ.get("HERMES_HOME", "").strip() and not folder.exists():
        lines.append(f"HERMES_HOME names a folder that does not exist: {folder}")
    return [*lines, "a store begins with the first conversation (`hermes`) or with `hermes sessions import`"]


@contextmanager
def open_store(arguments: argparse.Namespace, *, makes: bool = False) -> Iterator[SessionDB]:
    """Open the store. Open it read-only if it cannot be written. Create a missing store only with `makes`."""
    from hermes.db.session_db import SessionDB

    path = get_store_path(arguments) if makes else require_store(arguments)
    newer: StoreTooNew | None = None
    try:
        db = SessionDB(path, read_only=path.exists() and not is_writable(path))
    except StoreTooNew as problem:
        newer = problem
        print_error(f"{path} is of a newer version; the following is read from a copy of it")
        db = SessionDB(path, read_only=True)
    try:
        yield db
    except StoreReadOnly:
        if newer is None:
            raise
        raise newer from None  # its message says how to change such a store
    finally:
        db.close()


def is_writable(path: Path) -> bool:
    """Return whether the store and its folder are writable. The folder must be writable, because the engine
    creates files beside the store."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def get_sessions_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder of transcripts beside the store."""
    return get_store_path(arguments).parent / "sessions"


def read_trash_days() -> float:
    """Return for how many days deleted conversations are kept in the trash (`sessions.trash_days`)."""
    from hermes.config.config_file import read_setting

    days = read_setting("sessions", "trash_days")
    if days is None:
        return 30.0
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days < 1e6:
        raise Refused(f"sessions.trash_days in config.yaml must be a number of days, not {days!r}")
    return float(days)


def describe_trashed(db: SessionDB, name: str) -> list[str]:
    """Return a line that says how to restore the conversation if exactly this id or title is in the trash.
    Otherwise return an empty list."""
    if not any(name in (*row["sessions"], row["title"]) for row in db.list_trash()):
        return []
    from shlex import quote

    return [f"it is in the trash; restore it with `hermes sessions trash restore {quote(name)}`"]


def find_session(
    db: SessionDB, words: str | Sequence[str], *, segment: bool = False, in_full: bool = False
) -> str:
    """Return the id of a session. `words` is its id, the beginning of its id, or a title. `latest` means the
    last conversation of the terminal.

    A title stands for the last session of its conversation. With `segment`, it stands for the session that
    has this title.

    With `in_full`, `latest` and parts of a title are refused, because in a script they could name another
    session after a deletion.
    """
    name = words if isinstance(words, str) else " ".join(words)
    named = db.named(name)
    if named.id is not None:
        if (
            in_full
            and not named.id.lower().startswith(name.lower())
            and not db.resolve_session_by_title(name)
        ):
            raise Refused(f"'{name}' is only a part of the title of {named.id}; type the full title")
        titled = db.get_session_by_title(name) if segment and named.id != name else None
        return named.id if titled is None else str(titled["id"])
    from hermes.chat.conversation_lookup import describe_candidates, find_latest_id

    if name == "latest" and not in_full and (latest := find_latest_id(db)) is not None:
        return latest
    if not named.candidates:
        raise Refused(f"Session '{name}' not found.", describe_trashed(db, name))
    candidates = describe_candidates(named.candidates)
    raise Refused(
        f"'{name}' could be any of these:", [*candidates, "and more"] if named.are_more else candidates
    )
