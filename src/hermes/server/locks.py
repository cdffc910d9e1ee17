"""Holding a conversation while a request works in it, so that nobody writes between the look and the answer.

Among our own requests it is held by its first session, among processes by its lease: to the store, all requests of this
process are one. When it is left, it is noted where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from hermes import errors
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.context import Office
from hermes.gateway.sessions.agents import Whose
from hermes.gateway.sessions.conversation import Talking
from hermes.gateway.sessions.prompt_context import build_session_context_prompt
from hermes.logs import get_logger
from hermes.server.api_keys import Person
from hermes.server.history_index import Known
from hermes.server.message_format import Asked, Said, spelled, stored
from hermes.server.workers import Workers

T = TypeVar("T")
P = ParamSpec("P")

log = get_logger(__name__)

INSTRUCTED = (
    "The program through which the person talks with you gives these instructions for the conversation:"
)
INSTRUCTED_SO_FAR = "(These were the instructions of the program.)"


class Place(NamedTuple):
    """A conversation that a request holds."""

    person: Person
    talking: Talking
    conversation: str
    """Its first session: the id that stays."""
    content: Any
    """What is to be said; None if it was said before and has got no answer yet."""
    said_before: int | None = None
    """The message, in that case."""
    fleeting: bool = False
    """Whether it is thrown away when it is left."""
    note: str | None = None
    """What the client should know about the conversation."""

    @property
    def current(self) -> str:
        """The first session of the conversation as it goes on: another one if this was deleted meanwhile."""
        return self.talking.replaced_by or self.conversation


class Holding:
    def __init__(self, office: Office, known: Known, workers: Workers) -> None:
        self._office, self._known, self._workers = office, known, workers
        self._held: set[str] = set()

    def store(self, person: Person) -> ScopedStore:
        return self._office.db.scoped(person.principal)

    async def work(self, person: Person, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """In a thread, of which each key has few."""
        return await self._workers.run(person.name, work, *args, **options)

    async def entered_if_free(self, person: Person, session_id: str, asked: Asked) -> Place | None:
        try:
            return await self.entered(person, session_id, asked)
        except errors.LeaseHeld:
            return None

    async def entered(
        self, person: Person, session_id: str, asked: Asked, make_session: Callable[[], str] | None = None
    ) -> Place | None:
        """Hold the conversation of a session; None if another request does, `LeaseHeld` if another process.

        `make_session` makes the one in which it continues should it be deleted meanwhile.
        """
        store = self.store(person)
        root = await self.work(person, store.get_conversation_root, session_id) or session_id
        if root in self._held:
            return None
        self._held.add(root)

        async def replace_session() -> str:
            make = make_session or (lambda: store.create_session(origin=person.source.to_dict()))
            return await self.work(person, make)

        whose = self._whose(person, asked.instructions)
        talking = Talking(self._office.minds, store, whose, replace_session)
        try:
            live = await self.work(person, store.get_compression_tip, session_id)
            await talking.enter(live)
            if await self.work(person, store.get_compression_tip, session_id) != live:
                raise errors.LeaseHeld("somebody else has just compressed this conversation")
        except BaseException:
            self._held.discard(root)
            await talking.leave()
            raise
        return Place(person, talking, root, asked.new.content)

    async def leave(self, place: Place) -> None:
        """Let others work in it, and remember where it stands."""
        try:
            if place.fleeting:
                await self.work(place.person, place.talking.store.trash_session, place.current)
            else:
                await self.work(place.person, self._note, place)
        except errors.StoreError as problem:
            if place.fleeting:
                log.error("a conversation that was not to be stored could not be thrown away: %s", problem)
            # The other is not found by what was said, then.
        finally:
            await place.talking.leave()
            self._held.discard(place.conversation)

    def _note(self, place: Place) -> None:
        store = place.talking.store
        first = store.get_session(place.current)
        if first is None or first["parent_session_id"] is not None:
            return  # a branch does not hold all that its client knows
        said = stored(store.follow(place.current))
        self._known.put(place.current, mark_of(place.person, said) if said else None)

    async def remember(self, place: Place, said: Sequence[Said]) -> None:
        """Store what was said before, elsewhere."""
        store, session_id, epoch = place.talking.store, place.talking.session_id, place.talking.epoch
        assert session_id is not None
        if not said:
            return

        def keep() -> None:
            if not store.get_context(session_id):  # all of it, or nothing
                rows = [{"role": one.role, "content": one.content} for one in said]
                store.replace_messages(session_id, rows, lease_epoch=epoch)
                return
            for one in said:
                store.append_message(session_id, one.role, one.content, lease_epoch=epoch)

        await self.work(place.person, keep)

    # ---------------------------------------------------------------- what the agent is told

    def _whose(self, person: Person, instructions: str | None) -> Whose:
        office, source = self._office, person.source
        about = build_session_context_prompt(
            source,
            shared=False,
            platforms=list(office.adapters),
            home_channels={
                name: one.home_channel for name, one in office.settings.platforms.items() if one.home_channel
            },
        )
        if instructions:
            about = f"{about}\n\n{_instructed(instructions)}"
        return Whose(person.principal.person, source.platform, office.doorkeeper.is_owner(source), about)

    async def instruct(self, place: Place, instructions: str | None, *, keep: bool = False) -> None:
        """If the instructions are others now, the prompt is made anew. With `keep`, none are those that are there."""
        store, session_id = place.talking.store, place.talking.session_id
        assert session_id is not None
        session = await self.work(place.person, store.get_session, session_id)
        prompt = None if session is None else session["system_prompt"]
        if prompt is None or (keep and instructions is None):
            return
        same = _instructed(instructions) in prompt if instructions else INSTRUCTED not in prompt
        if not same:
            await self.work(place.person, store.update_system_prompt, session_id, None)


def _instructed(instructions: str) -> str:
    return f"{INSTRUCTED}\n\n{instructions}\n\n{INSTRUCTED_SO_FAR}"


def mark_of(person: Person, said: Sequence[Said]) -> str:
    return person.mark("conversation", spelled(said))
