"""Telegram: its real SDK in the gateway, and a local server that implements the Bot API."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.gateway import telegram_server
from tests.gateway.conformance import stage
from tests.gateway.conformance.stage import File, Loop, Person, Stage, Where, until
from tests.gateway.telegram_server import (
    BAD_GATEWAY,
    BOT_NAME,
    SILENT_AFTER,
    Chat,
    Json,
    Sent,
    TelegramServer,
    too_many,
)

MOST_PEOPLE = 80
GENERAL = "1"
"""The id of the general topic of a forum."""


class OnTelegram(Stage):
    platform = "telegram"
    can = frozenset(
        {
            *(stage.GROUPS, stage.THREADS, stage.EDITS, stage.STRANGERS, stage.PAIRING, stage.PREVIEWS),
            *(
                stage.LATER,
                stage.TWICE,
                stage.LIMITS,
                stage.SWALLOWS,
                stage.COMMANDS,
                stage.RECONNECTS,
                stage.FILES,
            ),
        }
    )
    max_length = telegram_server.LONGEST
    idempotent = False

    def __init__(self) -> None:
        self._loop = Loop()
        self._server = TelegramServer()
        self._loop.run(self._server.start())
        self._let_in = [self._server.person(f"Person {number}") for number in range(MOST_PEOPLE)]
        self._free = iter(self._let_in)
        self._people: dict[str, telegram_server.Person] = {}
        self._groups: dict[str, Chat] = {}

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TELEGRAM_BOT_TOKEN": self._server.token,
            "TELEGRAM_BASE_URL": self._server.base_url,
            "TELEGRAM_ALLOWED_USERS": ",".join(str(person.id) for person in self._let_in),
        }

    @property
    def config(self) -> dict[str, Any]:
        return {}

    def person(self, name: str, *, known: bool = True) -> Person:
        someone = next(self._free) if known else self._server.person(name)
        self._people[str(someone.id)] = someone._replace(first_name=name)
        return Person(str(someone.id), name, known)

    def dm(self, person: Person) -> Where:
        return Where("dm", person.id)

    def group(self, *people: Person, threads: bool = False) -> Where:
        chat = self._server.group("Friends", forum=threads)
        self._groups[str(chat.id)] = chat
        return Where("group", str(chat.id), GENERAL if chat.is_forum else None)

    def thread(self, group: Where, by: Person) -> Where:
        opened = self._server.topic(self._groups[group.chat], "A topic", self._people[by.id])
        return Where("thread", group.chat, str(opened))

    def say(self, person: Person, where: Where, text: str, *files: File) -> Json:
        return self._loop.call(self._saying(person, where, text, *files))

    def edit(self, said: Json, text: str) -> None:
        self._loop.call(lambda: self._server.edit(said, text))

    def deliver_again(self, said: Json) -> None:
        self._loop.call(lambda: self._server.deliver(said))

    def deliver_reversed(self, person: Person, where: Where, first: str, second: str) -> None:
        early, late = (
            self._loop.call(self._saying(person, where, text, delivered=False)) for text in (first, second)
        )
        self.deliver_again(late)
        until(lambda: late["update_id"] in self._server.acknowledged)
        self.deliver_again(early)

    def limit_next(self) -> None:
        self._loop.call(lambda: self._server.will("sendMessage", too_many(1)))

    def was_limited(self) -> bool:
        return not self._server.is_troubled("sendMessage")

    def refuse_everything(self) -> None:
        """Refuse the next message with an error. The connection stays open."""
        self._loop.call(lambda: self._server.will("sendMessage", BAD_GATEWAY))

    def swallow_next(self) -> None:
        self._loop.call(lambda: self._server.will("sendMessage", SILENT_AFTER))

    def has_swallowed(self) -> bool:
        return not self._server.is_troubled("sendMessage")

    def go_down(self) -> None:
        self._loop.run(self._server.stop())

    def come_back(self) -> None:
        self._loop.run(self._server.start())

    def heard(self, where: Where) -> list[str]:
        return self._loop.call(lambda: [one.text for one in self._server.sent if _is_there(one, where)])

    def close(self) -> None:
        self._loop.run(self._server.stop())
        self._loop.close()

    def _saying(
        self, person: Person, where: Where, text: str, *files: File, delivered: bool = True
    ) -> Callable[[], Json]:
        """Return a function that sends a message. In a group, the text is addressed to the bot, because the
        bot ignores other messages."""
        addressed = text if where.kind == "dm" or text.startswith("/") else f"@{BOT_NAME} {text}"
        file = files[0] if files else None
        picture = file is not None and file.media_type.startswith("image/")
        return partial(
            self._server.say,
            self._people[person.id],
            addressed,
            chat=self._groups.get(where.chat),
            thread=None if where.thread in (None, GENERAL) else int(str(where.thread)),
            photo=file.content if file and picture else None,
            document=(*file,) if file and not picture else None,
            delivered=delivered,
        )


def _is_there(sent: Sent, where: Where) -> bool:
    thread = None if where.thread == GENERAL else where.thread
    return (str(sent.chat_id), sent.thread and str(sent.thread)) == (where.chat, thread)
