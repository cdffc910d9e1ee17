"""Which conversation a request goes on with: the one it names, the one it exactly extends, or a new one.

A request that names its conversation is told when somebody else works in it; one that only looks like it gets one of
its own. What a conversation holds is looked at while it is held.

Sessions of the API are not reset by themselves, whatever the settings say of chats: a program that names one means it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from hermes import errors
from hermes.db.scoped_store import ScopedStore
from hermes.server.api_errors import Refused, no_such_response
from hermes.server.api_keys import Person
from hermes.server.history_index import Known
from hermes.server.locks import Holding, Place, mark_of
from hermes.server.message_format import Asked, Said, stored

MOST_NAMESAKES = 1000
"""Sessions of one name that were thrown away, one after the other."""
REPLACED = "The session named {name} is in the trash. This continues in a new session, {session}."
NOTHING = Asked(None, (), Said("user", ""))


class Conversations:
    def __init__(self, holding: Holding, known: Known) -> None:
        self._holding, self._known = holding, known

    async def named(self, person: Person, name: str, asked: Asked) -> Place:
        """The session of this id, or the one that the client calls so. Only the last message is new there."""
        store = self._holding.store(person)
        session_id, is_another = await self._holding.work(person, _session_named, store, name)
        make = partial(_make_named, store, name)
        place = await self._holding.entered(person, session_id, asked, make)
        if place is None:
            raise _busy()
        try:
            rows = await self._holding.work(person, store.follow, session_id)
            said = stored(rows)
            if is_another and not rows:
                place = place._replace(note=REPLACED.format(name=name, session=place.conversation))
            if said and said[-1] == asked.new:
                place = _again(place, rows)
            elif not await self._holding.work(person, store.get_context, place.talking.session_id or ""):
                await self._holding.remember(place, asked.before)
            await self._holding.instruct(place, asked.instructions, keep=True)
        except BaseException:
            await self._holding.leave(place)
            raise
        return place

    async def extended(self, person: Person, asked: Asked) -> Place:
        """The conversation that the request extends exactly; else a new one that begins with all it says."""
        again = (*asked.before, asked.new)
        place = await self._standing_at(person, again, asked)
        if place is None and asked.before:
            place = await self._standing_at(person, asked.before, asked)
        return place or await self.begun(person, asked)

    async def after(
        self, person: Person, session_id: str, message_id: int, asked: Asked, *, fleeting: bool = False
    ) -> Place:
        """Go on after the answer to a message: in its conversation if it is the last there, else in a branch."""
        store = self._holding.store(person)
        answered = await self._holding.work(person, answer_to, store, session_id, message_id)
        place = None if fleeting else await self._holding.entered_if_free(person, session_id, asked)
        try:
            if place is not None:  # nobody writes from now on
                answered = await self._holding.work(person, answer_to, store, session_id, message_id)
                if answered.since and stored(answered.since) != (*asked.before, asked.new):
                    await self._holding.leave(place)
                    place = None
            if place is None:
                branch = await self._holding.work(
                    person, partial(store.branch, *answered.end, end_parent=False)
                )
                place = await self._holding.entered(person, branch, asked)
                assert place is not None
                place = place._replace(fleeting=fleeting)
                await self._holding.remember(place, asked.before)
            elif answered.since:
                place = _again(place, answered.since)
            else:
                await self._holding.remember(place, asked.before)
            await self._holding.instruct(place, asked.instructions)
        except BaseException:
            if place is not None:
                await self._holding.leave(place)
            raise
        return place

    async def take_back(self, person: Person, session_id: str, message_id: int) -> None:
        """Take a message and its answer out of the conversation; of its only one, the conversation with it."""
        store = self._holding.store(person)
        await self._holding.work(person, answer_to, store, session_id, message_id)
        place = await self._holding.entered(person, session_id, NOTHING)
        if place is None:
            raise _busy()
        try:
            answered = await self._holding.work(person, answer_to, store, session_id, message_id)
            if answered.since:
                raise Refused(409, "later responses build on this one: delete those first")
            before = await self._holding.work(person, store.get_context, place.talking.session_id or "")
            if any(row["id"] < message_id for row in before):
                live, epoch = place.talking.session_id or "", place.talking.epoch
                await self._holding.work(
                    person, lambda: store.rewind_to_message(live, message_id, lease_epoch=epoch)
                )
            else:
                await self._holding.work(person, store.trash_session, place.conversation)
        finally:
            await self._holding.leave(place)

    async def throw_away(self, person: Person, session_id: str) -> None:
        """The whole conversation, into the trash."""
        store = self._holding.store(person)
        place = await self._holding.entered(person, session_id, NOTHING)
        if place is None:
            raise _busy()
        try:
            await self._holding.work(person, store.trash_session, place.conversation)
        finally:
            await self._holding.leave(place)

    async def _standing_at(self, person: Person, said: Sequence[Said], asked: Asked) -> Place | None:
        store = self._holding.store(person)
        mark = await self._holding.work(person, mark_of, person, said)
        for conversation in self._known.find(mark):
            session = await self._holding.work(person, store.get_session, conversation)
            if session is None:
                await self._holding.work(person, self._known.put, conversation, None)
                continue
            place = await self._holding.entered_if_free(person, conversation, asked)
            if place is None:
                continue
            try:
                rows = await self._holding.work(person, store.follow, conversation)
                if await self._holding.work(person, _says, rows, said):
                    if said[-1] is asked.new:
                        place = _again(place, rows)
                    await self._holding.instruct(place, asked.instructions)
                    return place
            except BaseException:
                await self._holding.leave(place)
                raise
            await self._holding.leave(place)  # it notes where the conversation really stands
        return None

    async def begun(self, person: Person, asked: Asked, *, fleeting: bool = False) -> Place:
        """A new one."""
        store = self._holding.store(person)
        origin = person.source.to_dict()
        session_id = await self._holding.work(person, lambda: store.create_session(origin=origin))
        place = await self._holding.entered(person, session_id, asked)
        assert place is not None
        place = place._replace(fleeting=fleeting)
        try:
            await self._holding.remember(place, asked.before)
        except BaseException:
            await self._holding.leave(place)
            raise
        return place


class Answered(NamedTuple):
    """A person's message with what came of it."""

    rows: list[dict[str, Any]]
    """The message, and all up to the next one."""
    since: list[dict[str, Any]]

    @property
    def end(self) -> tuple[str, int]:
        """The session and the id of the last thing that was done for it; a summary may have come behind that."""
        last = [row for row in self.rows if row["role"] in ("assistant", "tool")][-1]
        return last["session_id"], last["id"]


def answer_to(store: ScopedStore, session_id: str, message_id: int) -> Answered:
    """What was answered to a message. One that is not there, or no more, was never answered."""
    rows = store.follow(session_id, message_id - 1) if store.get_session(session_id) else []
    if not rows or rows[0]["id"] != message_id:
        raise no_such_response()
    said = [number for number, row in enumerate(rows) if row["role"] == "user" and number]
    end = said[0] if said else len(rows)
    if not any(row["role"] == "assistant" for row in rows[:end]):
        raise no_such_response()
    return Answered(rows[:end], rows[end:])


def _says(rows: Sequence[dict[str, Any]], said: Sequence[Said]) -> bool:
    return stored(rows) == tuple(said)


def _again(place: Place, rows: Sequence[dict[str, Any]]) -> Place:
    """What is to be said was said, and is not answered: it is not said twice."""
    said = [row["id"] for row in rows if row["role"] == "user"]
    return place._replace(content=None, said_before=said[-1])


def _busy() -> Refused:
    return Refused(
        409,
        "another request is working in this conversation",
        code="session_busy",
        headers={"Retry-After": "1"},
    )


def _make_named(store: ScopedStore, name: str) -> str:
    return _session_named(store, name)[0]


def _session_named(store: ScopedStore, name: str) -> tuple[str, bool]:
    """The session that the client calls so, and whether it takes the place of one in the trash."""
    if store.get_session(name) is not None:
        return name, False
    is_trashed = store.get_session(name, include_trashed=True) is not None
    for number in range(1, MOST_NAMESAKES):  # one that was thrown away does not come back by being named
        try:
            return store.create_session(name if number == 1 else f"{name}.{number}"), is_trashed or number > 1
        except errors.SessionInTrash:
            continue
    raise Refused(409, "too many sessions of this name are in the trash", code="session_in_trash")
