"""The persistent state of the adapter, in its own folder: the login and the sync position.

`login.json` holds the device and its access token. `keys.db` holds the keys of end-to-end encryption; nio writes it.
`state.json` holds everything that a sync changes. It is one file, so that all of it changes atomically. Therefore each
message is either not yet received, accepted by the gateway, or waiting for its key.
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
"""Maximum number of messages that wait for a key. The oldest is dropped first."""
MOST_THREADS = 2000
"""Maximum number of remembered threads in which the bot has written."""


class Login(NamedTuple):
    homeserver: str
    user_id: str
    device_id: str
    access_token: str
    """Empty if the device has to sign in again."""


class State:
    """The sync position, the private chats, the open invitations, the messages without a key, and the bot's
    threads."""

    def __init__(self, user_id: str) -> None:
        self.user_id = user_id
        self.since: str | None = None
        """The sync position. The gateway has accepted all messages before it. None before the first sync."""
        self.direct: dict[str, str] = {}
        """The other person of each private chat: room id to user id."""
        self.invitations: dict[str, str] = {}
        """The senders of invitations that are not accepted yet: room id to user id."""
        self.waiting: dict[str, dict[str, Any]] = {}
        """Messages whose key is missing: event id to encrypted event."""
        self.threads: dict[str, str] = {}
        """Threads in which the bot has written: id of the first message to room id."""

    def wait_for_key(self, event_id: str, event: dict[str, Any]) -> None:
        self.waiting[event_id] = event
        forget_oldest(self.waiting, MOST_WAITING)

    def add_thread(self, room_id: str, thread: str) -> None:
        """Record that the bot has written in a thread."""
        self.threads[thread] = room_id
        forget_oldest(self.threads, MOST_THREADS)


class StateFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keeping = asyncio.Lock()

    def prepare(self) -> Path:
        """Prepare the state folder of the adapter, and return it. The folder and an empty `keys.db` are created
        with private permissions, before nio opens the file."""
        home.make_private_folder(self._folder)
        home.tighten(str(self._folder), home.PRIVATE_FOLDER)
        keys = self._folder / KEYS
        if not keys.exists():
            # Without its keys, the device is useless: other people would still encrypt for the lost keys.
            (self._folder / "login.json").unlink(missing_ok=True)
            atomic_files.replace_file(keys, b"")
        return self._folder

    def login(self, homeserver: str, user_id: str) -> Login | None:
        """Return the login of `user_id` on `homeserver` that is stored in `login.json`, or None if there is none."""
        data = self._read("login.json")
        try:
            login = Login(**data)
        except TypeError:
            return None
        return login if (login.homeserver, login.user_id) == (homeserver, user_id) else None

    def save_login(self, login: Login) -> None:
        atomic_files.replace_file(self._folder / "login.json", msgspec.json.encode(login._asdict()))

    def state(self, user_id: str) -> State:
        """Return the state that is stored in `state.json`. If the file belongs to another user than `user_id`,
        return an empty state."""
        state = State(user_id)
        data = self._read("state.json")
        if data.get("user_id") == user_id:
            vars(state).update({name: data[name] for name in vars(state) if name in data})
        return state

    async def save_state(self, state: State) -> None:
        """Write `state` to `state.json`. The write finishes even if the task is cancelled."""
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
            # With an empty state, messages sent in the meantime would be skipped. The operator must decide.
            raise Misconfigured(f"matrix: cannot read {self._folder / name}: {error}") from error
        return data if isinstance(data, dict) else {}


def forget_oldest(entries: dict[str, Any], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
