"""Matrix: matrix-nio in the gateway, a real Synapse, and people with their own clients."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from nio import AsyncClient, AsyncClientConfig

from hermes.gateway.platforms.matrix.formatting import LONGEST
from tests.gateway.conformance import stage
from tests.gateway.conformance.proxy import Proxy
from tests.gateway.conformance.stage import File, Loop, Person, Stage, Where
from tests.gateway.synapse import Heard, Synapse, eventually
from tests.gateway.synapse import Person as Guest

LET_IN = ("ann", "bob")
MOST_PEOPLE = 80


class Said(NamedTuple):
    by: Guest
    room: str
    event_id: str


class OnMatrix(Stage):
    platform = "matrix"
    can = frozenset(
        {
            *(stage.GROUPS, stage.THREADS, stage.EDITS, stage.STRANGERS, stage.PAIRING, stage.PREVIEWS),
            *(stage.LATER, stage.LIMITS, stage.SWALLOWS, stage.COMMANDS, stage.RECONNECTS, stage.FILES),
        }
    )
    max_length = LONGEST
    idempotent = True

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._loop = Loop()
        self._synapse = Synapse(Path(self._folder.name))
        self._synapse.start()
        self._proxy = Proxy(self._synapse.port)
        self._loop.run(self._proxy.start())
        self._bot = self._loop.run(self._synapse.account("hermes"))
        self._guests: dict[str, Guest] = {}
        self._private: dict[str, str] = {}
        self._watching: dict[str, Guest] = {}
        self._limited_before = 0

    @property
    def environment(self) -> dict[str, str]:
        allowed = (f"@{name}{number}:localhost" for name in LET_IN for number in range(MOST_PEOPLE))
        return {
            "MATRIX_HOMESERVER": f"http://127.0.0.1:{self._proxy.port}",
            "MATRIX_USER_ID": self._bot.user_id,
            "MATRIX_ACCESS_TOKEN": self._bot.access_token,
            "MATRIX_ALLOWED_USERS": ",".join(allowed),
        }

    @property
    def config(self) -> dict[str, Any]:
        return {}

    def person(self, name: str, *, known: bool = True) -> Person:
        assert known == (name.lower() in LET_IN)
        guest = self._loop.run(self._came(name))
        self._guests[guest.user_id] = guest
        return Person(guest.user_id, name, known)

    def dm(self, person: Person) -> Where:
        if person.id not in self._private:
            self._private[person.id] = self._loop.run(self._met(self._guests[person.id]))
        return Where("dm", self._private[person.id])

    def group(self, *people: Person, threads: bool = False) -> Where:
        assert len(people) > 1, "with one person alone it is a private chat"
        return Where("group", self._loop.run(self._gathered([self._guests[one.id] for one in people])))

    def thread(self, group: Where, by: Person) -> Where:
        root = self._loop.run(self._guests[by.id].say(group.chat, "something to talk about"))
        return Where("thread", group.chat, root)

    def say(self, person: Person, where: Where, text: str, *files: File) -> Said:
        return self._loop.run(self._said(self._guests[person.id], where, text, *files))

    def edit(self, said: Said, text: str) -> None:
        self._loop.run(said.by.edit(said.room, said.event_id, text))

    def limit_next(self) -> None:
        self._limited_before = self._proxy.limited
        self._loop.run(self._synapse.limit(self._bot.user_id, per_second=1, burst=1))

    def was_limited(self) -> bool:
        self._loop.run(self._synapse.limit(self._bot.user_id, per_second=0, burst=0))
        return self._proxy.limited > self._limited_before

    def swallow_next(self) -> None:
        self._proxy.swallows = True

    def has_swallowed(self) -> bool:
        return not self._proxy.swallows

    def go_down(self) -> None:
        self._loop.run(self._proxy.stop())

    def come_back(self) -> None:
        self._loop.run(self._proxy.start())

    def heard(self, where: Where) -> list[str]:
        return self._loop.call(lambda: self._shown(where))

    def close(self) -> None:
        for guest in self._guests.values():
            self._loop.run(guest.gone())
        self._loop.run(self._proxy.stop())
        self._loop.close()
        self._synapse.stop()
        self._folder.cleanup()

    async def _came(self, name: str) -> Guest:
        account = await self._synapse.account(name.lower())
        client = AsyncClient(self._synapse.url, config=AsyncClientConfig(encryption_enabled=False))
        client.restore_login(account.user_id, account.device_id, account.access_token)
        guest = Guest(client)
        await eventually(lambda: client.next_batch)
        return guest

    async def _met(self, guest: Guest) -> str:
        room = await guest.create_dm(self._bot.user_id)
        await guest.meets(room, self._bot.user_id)
        self._watching[room] = guest
        return room

    async def _gathered(self, guests: list[Guest]) -> str:
        first, *others = guests
        room = await first.create_group("Friends", self._bot.user_id, *(one.user_id for one in others))
        for guest in others:
            await guest.join(room)
        await first.meets(room, self._bot.user_id)
        self._watching[room] = first
        return room

    async def _said(self, guest: Guest, where: Where, text: str, *files: File) -> Said:
        """Send a message. In a group, the text is addressed to the bot, because the bot ignores other
        messages."""
        for file in files:
            kind = "m.image" if file.media_type.startswith("image/") else "m.file"
            sent = await guest.attach(
                where.chat, file.name, file.content, file.media_type, kind=kind, caption=text
            )
            return Said(guest, where.chat, sent)
        called = () if where.kind == "dm" else (self._bot.user_id,)
        return Said(
            guest, where.chat, await guest.say(where.chat, text, thread=where.thread, mentions=called)
        )

    def _shown(self, where: Where) -> list[str]:
        visible: dict[str, Heard] = {}
        for message in self._watching[where.chat].so_far(where.chat):
            if message.sender != self._bot.user_id:
                continue
            if message.edits is None:
                visible[message.event_id] = message
            else:
                new = message.content["m.new_content"]["body"]
                visible[message.edits] = visible[message.edits]._replace(text=new)
        return [one.text for one in visible.values() if one.thread == where.thread]
