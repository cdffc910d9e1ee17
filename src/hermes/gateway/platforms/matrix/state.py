"""The state that outlasts the process, in the adapter's own folder: the login, and the position of the sync.

`login.json` holds the device and its access token, `keys.db` the keys of end-to-end encryption (nio's), `state.json`
everything that one sync changes. It is one file so that it changes atomically: a message is still to come from the
server, or it was handed in, or it waits here for its key.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hermes import atomic_files, home
from hermes.gateway.adapter import Misconfigured

KEYS = "keys.db"
MOST_WAITING = 500
"""Messages that wait for a key; the oldest is given up then."""
MOST_THREADS = 2000
"""Threads that we remember to take part in."""


class Login(NamedTuple):
    homeserver: str
    user_id: str
    device_id: str
    access_token: str
    """Empty if the device has to sign in again."""


class State:
    """How far we have listened, and what is still open there."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.since: str | None = None
        """Everything before this was handed in; None: we never listened."""
        self.direct: dict[str, str] = {}
        """Room to person: whose private chat it is."""
        self.invitations: dict[str, str] = {}
        """Room to person: who invited us, where we did not go yet."""
        self.waiting: dict[str, dict[str, Any]] = {}
        """Event id to encrypted event: messages whose key has not come."""
        self.threads: dict[str, str] = {}
        """First message to room: threads that we take part in."""

    def wait_for_key(self, event_id: str, event: dict[str, Any]) -> None:
        self.waiting[event_id] = event
        forget_oldest(self.waiting, MOST_WAITING)

    def add_thread(self, room_id: str, thread: str) -> None:
        """A thread is ours from now on."""
        self.threads[thread] = room_id
        forget_oldest(self.threads, MOST_THREADS)


class StateFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keeping = asyncio.Lock()

    def prepare(self) -> Path:
        """The folder, with the file of keys private before nio opens it."""
        home.make_private_folder(self._folder)
        home.tighten(str(self._folder), home.PRIVATE_FOLDER)
        keys = self._folder / KEYS
        if not keys.exists():
            # A device that lost its keys is of no use: others would go on encrypting for the ones it had.
            (self._folder / "login.json").unlink(missing_ok=True)
            atomic_files.replace_file(keys, b"")
        return self._folder

    def login(self, homeserver: str, user_id: str) -> Login | None:
        """The device of this person on this server, if we had one."""
        data = self._read("login.json")
        try:
            login = Login(**data)
        except TypeError:
            return None
        return login if (login.homeserver, login.user_id) == (homeserver, user_id) else None

    def save_login(self, login: Login) -> None:
        atomic_files.replace_file(self._folder / "login.json", msgspec.json.encode(login._asdict()))

    def state(self, user_id: str) -> State:
        """What was kept of this person; nothing, if it was somebody else's."""
        state = State(user_id)
        data = self._read("state.json")
        if data.get("user_id") == user_id:
            vars(state).update({name: data[name] for name in vars(state) if name in data})
        return state

    async def save_state(self, state: State) -> None:
        """As it is now; done even if we are told to end meanwhile, because whoever starts next reads it."""
        async with self._keeping:
            data = msgspec.json.encode(vars(state))
            writing = asyncio.create_task(
                asyncio.to_thread(atomic_files.replace_file, self._folder / "state.json", data)
            )
            try:
                await asyncio.shield(writing)
            finally:
                await writing

    def _read(self, name: str) -> dict[str, Any]:
        try:
            data = msgspec.json.decode((self._folder / name).read_bytes())
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            # To begin anew would mean to pass over what was said meanwhile: a person has to decide that.
            raise Misconfigured(f"matrix: {self._folder / name} cannot be read: {error}") from error
        return data if isinstance(data, dict) else {}


def forget_oldest(entries: dict[str, Any], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
