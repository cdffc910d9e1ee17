"""`sessions/sessions.json`: the current session of each chat, for people and other programs.

The file is written from the store. The first change is written at once. After each write there is a pause of at
least 0.4 seconds. With many chats the pause is longer, so that the writes take at most about a twelfth of one
processor. With 10,000 chats, a write takes 50 ms of processor time. Only changed entries are encoded again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from hermes import clock, errors, home
from hermes.atomic_files import sync_folder
from hermes.gateway.inbound_events import Source
from hermes.logs import get_logger
from hermes.store.content import from_json
from hermes.store.engine_choice import is_encrypted
from hermes.store.transfer.mirror_source import MirroredChat

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

log = get_logger(__name__)

NAME = "sessions.json"
LEAST_PAUSE_S = 0.4
"""Minimum pause between two writes, in seconds."""
LOOK_EVERY_S, WHOLE_LOOK_EVERY_S = 0.2, 5.0
"""Seconds between two checks whether the store has changed, and between two comparisons of all chats."""
SHARE = 12
FLAGS = ("expiry_finalized", "suspended", "resume_pending")


def is_enabled(setting: bool | None, store: Path) -> bool:
    """Return whether `sessions.json` must be written for the store file `store`. `setting` is the value of the
    setting `sessions.index_file`, or None. If it is None, the file is written unless the store is encrypted,
    because the file is plain text."""
    return not is_encrypted(store) if setting is None else setting


class IndexFile:
    def __init__(self, db: SessionDB, folder: Path, *, enabled: bool = True) -> None:
        self._db, self._folder, self._enabled = db, folder, enabled
        self._pieces: dict[str, tuple[int, bytes]] | None = None
        """By session key: the hash of the chat's row in the store, and the chat's encoded entry in the file.
        """
        self._cost = 0.0
        self._touched = asyncio.Event()
        self._problem: str | None = None

    def touch(self) -> None:
        """Request that `sessions.json` is written soon, because a chat has changed. This method does no I/O."""
        self._touched.set()

    async def follow(self, stop: asyncio.Event) -> None:
        """Write `sessions.json` after each call of `touch` and after each change of the store by another process,
        until `stop` is set. Then write it once more."""
        if not self._enabled:
            return
        ending = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._touched.clear()
                state = await self._state()
                await self._write_quietly()
                await asyncio.wait([ending], timeout=max(LEAST_PAUSE_S, SHARE * self._cost))
                await self._until_changed(state, ending)
        finally:
            ending.cancel()
        await self._write_quietly()

    async def _until_changed(self, state: object, ending: asyncio.Future[Any]) -> None:
        """Wait until `sessions.json` may have to be written again. This is the case if `touch` was called, if the
        chats in the store are no longer as in `state`, if `ending` is done, or if no check was made for a long
        time."""
        until = monotonic() + max(WHOLE_LOOK_EVERY_S, SHARE * self._cost)
        touched = asyncio.ensure_future(self._touched.wait())
        try:
            while not (ending.done() or touched.done()) and monotonic() < until:
                if await self._state() != state:
                    return
                await asyncio.wait(
                    [ending, touched], timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            touched.cancel()

    async def _state(self) -> object:
        try:
            return await asyncio.to_thread(self._db.mirrored.read_chats_state)
        except errors.HermesError:
            return None  # the next write logs the error

    async def _write_quietly(self) -> None:
        try:
            await asyncio.to_thread(self.write)
            self._problem = None
        except (errors.HermesError, OSError) as problem:  # the next write tries again
            if str(problem) != self._problem:
                log.warning("%s is not up to date: %s", self._folder / NAME, problem)
            self._problem = str(problem)

    def write(self) -> bool:
        """Write `sessions.json` if its content has changed since the last call. Return whether it was written."""
        began, is_first = thread_time(), self._pieces is None
        try:
            previous = self._pieces or {}
            pieces: dict[str, tuple[int, bytes]] = {}
            is_new = is_first
            for row in self._db.mirrored.list_chats():
                key, digest = row[0], hash(row)
                piece = previous.get(key)
                if piece is None or piece[0] != digest:
                    piece, is_new = (digest, _encode_entry(key, make_entry(MirroredChat.from_row(row)))), True
                pieces[key] = piece
            if not is_new and len(previous) == len(pieces):
                return False
            home.make_private_folder(self._folder)
            if is_first:
                _clear_stale((self._folder / NAME).resolve().parent)
            text = b",\n".join(piece for _, piece in pieces.values())
            _replace((self._folder / NAME).resolve(), b"{\n" + text + b"\n}" if text else b"{}")
            self._pieces = pieces
            return True
        finally:
            # The first write encodes every entry, so its cost does not predict the cost of later writes.
            if not (is_first and self._pieces is not None):
                self._cost = thread_time() - began


def _encode_entry(key: str, entry: dict[str, Any]) -> bytes:
    """Return the JSON of one chat's entry as it appears in `sessions.json`: the key and the entry, without the
    outer braces of the file."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode({key: entry}), indent=2)[2:-2]


def make_entry(chat: MirroredChat) -> dict[str, Any]:
    """Return the entry of a chat for `sessions.json`, in the documented format."""
    route, stored = chat.route, chat.route.entry
    name = stored.get("display_name") or chat.display_name
    counts = {
        "input_tokens": chat.input_tokens or 0,
        "output_tokens": chat.output_tokens or 0,
        "cache_read_tokens": chat.cache_read_tokens or 0,
        "cache_write_tokens": chat.cache_write_tokens or 0,
    }
    return {
        "session_key": route.session_key,
        "session_id": route.session_id,
        "created_at": clock.format_iso(route.created_at),
        "updated_at": clock.format_iso(
            max(clock.filter_times([route.updated_at, chat.last_active]), default=None)
        ),
        "display_name": name if isinstance(name, str) else None,
        "platform": route.platform,
        "chat_type": route.chat_type,
        **counts,
        "total_tokens": sum(counts.values()),
        "last_prompt_tokens": _to_integer(stored.get("last_prompt_tokens")),
        "estimated_cost_usd": chat.estimated_cost_usd or 0.0,
        "cost_status": chat.cost_status or "unknown",
        **{flag: stored.get(flag) is True for flag in FLAGS},
        "resume_reason": _to_text(stored.get("resume_reason")),
        "last_resume_marked_at": _format_moment(stored.get("last_resume_marked_at")),
        "is_fresh_reset": stored.get("is_fresh_reset") is True,
        "origin": _make_origin(chat, name),
    }


def _make_origin(chat: MirroredChat, name: object) -> dict[str, Any]:
    """Return the field `origin` for the entry of a chat. This is the stored origin of the chat, as its platform
    reported it. If none is stored, it is built from the chat's route and `name`, the display name of the chat."""
    route = chat.route
    for origin in (route.entry.get("origin"), from_json(chat.origin_json or "null", None)):
        if isinstance(origin, Mapping):
            with suppress(ValueError):
                return Source.from_dict({"platform": route.platform, **origin}).to_dict()
    alone = chat.user_id if route.chat_type == "dm" else None
    return Source(
        route.platform,
        route.chat_id,
        name if isinstance(name, str) else None,
        route.chat_type,
        route.participant or alone,
        thread_id=route.thread_id or None,
    ).to_dict()


def _to_integer(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _to_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _format_moment(value: object) -> str | None:
    return clock.format_iso(value) if isinstance(value, int | float) else _to_text(value)


def _replace(file: Path, data: bytes) -> None:
    """Replace `file` with a new file that contains `data`, atomically. Only the user who runs the program can read
    the new file."""
    fresh = file.parent / f".sessions_{os.urandom(6).hex()}.tmp"
    descriptor = home.create_private_file(fresh)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(descriptor, "wb", closefd=False) as out:
            out.write(data)
        os.fsync(descriptor)
        fresh.replace(file)
        sync_folder(file.parent)
    finally:
        with suppress(OSError):
            fresh.unlink()
        os.close(descriptor)


def _clear_stale(folder: Path) -> None:
    """Remove the temporary files of `sessions.json` that killed processes left in `folder`. Called only once,
    because listing the folder is slow if it holds many transcripts."""
    for stale in folder.glob(".sessions_*.tmp"):
        _remove_stale(stale)


def _remove_stale(file: Path) -> None:
    """Remove a temporary file unless its writer still holds the lock."""
    with suppress(OSError), file.open("rb") as left:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlink()
