"""The store as one person may use it: the only handle that chats and web pages are given.

It has the verbs of `SessionDB` that make sense there, with the same arguments and answers. A session that is somebody
else's is, in every one of them, a session that does not exist: the same results, the same errors, the same lookups.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hermes import errors
from hermes.recall.messages import MessageSearch
from hermes.store.content import json_or_none
from hermes.store.engine import Engine
from hermes.store.families import Child, Families
from hermes.store.keeping import Keeping
from hermes.store.leases import Lease, Leases
from hermes.store.lineage import Lineage, Relative
from hermes.store.listing import ConversationPage, Listing, Wanted
from hermes.store.messages import Messages
from hermes.store.people import Principal
from hermes.store.rewind import Rewinds
from hermes.store.routing import Route, Routing
from hermes.store.sessions import Belonging, Sessions, Usage, new_session_id
from hermes.store.titles import Titles
from hermes.store.transfer import Transfer
from hermes.store.trash import Trash
from hermes.store.usage import ModelCall, UsageRecords, UsageTotals
from hermes.store.values import SearchResults

if TYPE_CHECKING:
    from hermes.store.spooling import Spooling

T = TypeVar("T")
Row = dict[str, Any]


class ScopedStore:
    def __init__(self, engine: Engine, principal: Principal, spooling: Spooling | None = None) -> None:
        if not principal.owners:
            raise errors.raised(errors.InvalidArgument, "a principal names a person or a room")
        self.principal = principal
        self._whole = engine
        self._scope = engine.scoped(principal.owners)
        self._spooling = spooling

    # ---------------------------------------------------------------- sessions

    def create_session(
        self,
        session_id: str | None = None,
        *,
        shared: bool = False,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        parent_session_id: str | None = None,
        session_key: str | None = None,
        display_name: str | None = None,
        origin: dict[str, Any] | None = None,
        started_at: float | None = None,
    ) -> str:
        """A session of this person or, `shared`, of the room they speak in; its id, which may differ from the wish.

        An id that somebody else has is not told to be taken: the session gets another one.
        """
        who = self.principal
        owner = who.room if shared else who.person
        if not owner:
            raise errors.raised(
                errors.InvalidArgument, f"no {'room' if shared else 'person'} is known to own the session"
            )
        if parent_session_id is not None and self.get_session(parent_session_id) is None:
            raise errors.raised(errors.UnknownSession, f"parent session {parent_session_id!r} does not exist")
        belonging = Belonging(
            owner, session_key, who.chat, who.chat_type, who.thread, display_name, json_or_none(origin)
        )
        wanted = new_session_id() if session_id is None else session_id
        for name in (wanted, f"{wanted}_{os.urandom(8).hex()}"):
            (self._spooling or Sessions(self._whole)).create(
                name,
                who.platform,
                model=model,
                model_config=model_config,
                system_prompt=system_prompt,
                user_id=who.user,
                parent_session_id=parent_session_id,
                started_at=started_at,
                belonging=belonging,
            )
            if self.get_session(name) is not None:
                return name
        raise errors.raised(errors.StoreFailed, "no id was free for the session")

    def end_session(self, session_id: str, end_reason: str) -> None:
        self._if_mine(lambda: Sessions(self._scope.owning(session_id)).end(session_id, end_reason))

    def reopen_session(self, session_id: str) -> None:
        self._if_mine(lambda: Sessions(self._scope.owning(session_id)).reopen(session_id))

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        mine = Sessions(self._scope.owning(session_id))
        self._if_mine(lambda: mine.set_system_prompt(session_id, system_prompt))

    def update_token_counts(self, session_id: str, *, absolute: bool = False, **usage: Any) -> None:
        """As documented, but for a session that is there."""
        mine = Sessions(self._scope.owning(session_id))
        mine.update_token_counts(session_id, Usage(**usage), absolute=absolute)

    def get_session(self, session_id: str) -> Row | None:
        return Sessions(self._scope).get(session_id)

    def session_count(self, source: str | None = None) -> int:
        return Sessions(self._scope).count(source)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        return Sessions(self._scope).resolve_id(session_id_or_prefix)

    # ---------------------------------------------------------------- messages

    def append_message(self, session_id: str, role: str, content: Any = None, **fields: Any) -> int:
        if self._spooling is not None:
            given = {"session_id": session_id, "role": role, "content": content, **fields}
            return self._spooling.append_for(self.principal.owners, given)
        return Messages(self._scope.owning(session_id)).append(session_id, role, content, **fields)

    def get_messages(self, session_id: str) -> list[Row]:
        return Messages(self._scope).of(session_id)

    def get_messages_as_conversation(self, session_id: str, include_ancestors: bool = False) -> list[Row]:
        return Messages(self._scope).conversation(session_id, include_ancestors)

    def message_count(self, session_id: str | None = None) -> int:
        return Messages(self._scope).count(session_id)

    def rewind_to_message(
        self, session_id: str, user_message_id: int, *, lease_epoch: int | None = None
    ) -> Row:
        mine = Rewinds(self._scope.owning(session_id))
        return mine.to_message(session_id, user_message_id, lease_epoch)

    def restore_rewound(self, session_id: str, since_id: int = 0, *, lease_epoch: int | None = None) -> int:
        return Rewinds(self._scope.owning(session_id)).restore(session_id, since_id, lease_epoch)

    def list_recent_user_messages(self, session_id: str, limit: int = 20) -> list[Row]:
        return Rewinds(self._scope).recent_from_people(session_id, limit)

    # ---------------------------------------------------------------- titles and families

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        mine = Titles(self._scope.owning(session_id))
        return bool(self._if_mine(lambda: mine.set(session_id, title)))

    def set_auto_title_if_empty(self, session_id: str, title: str) -> str | None:
        mine = Titles(self._scope.owning(session_id))
        return self._if_mine(lambda: mine.set_if_empty(session_id, title))

    def get_session_title(self, session_id: str) -> str | None:
        return Titles(self._scope).get(session_id)

    def get_session_by_title(self, title: str) -> Row | None:
        return Titles(self._scope).session_by_title(title)

    def resolve_session_by_title(self, title: str) -> str | None:
        return Titles(self._scope).resolve(title)

    def get_compression_tip(self, session_id: str) -> str:
        return Lineage(self._scope).compression_tip(session_id)

    def get_conversation_root(self, session_id: str) -> str | None:
        return Lineage(self._scope).conversation_root(session_id)

    def resolve_resume_session_id(self, session_id: str) -> str:
        return Lineage(self._scope).resume_target(session_id)

    def tip(self, name: str) -> str | None:
        known = self.resolve_session_id(name) if name else None
        if known is None:
            known = self.resolve_session_by_title(name)
        return None if known is None else self.get_compression_tip(known)

    def family(self, session_id: str) -> Relative | None:
        return Lineage(self._scope).family(session_id)

    def begin_continuation(
        self,
        parent: str,
        summary: str,
        carried: Iterable[int] = (),
        *,
        head: Iterable[int] = (),
        lease_epoch: int | None = None,
        **child: Any,
    ) -> str:
        mine = Families(self._scope.owning(parent))
        return mine.begin_continuation(parent, summary, carried, head, _minted(child), lease_epoch)

    def branch(
        self,
        session: str,
        at_message: int | None = None,
        *,
        end_parent: bool = True,
        lease_epoch: int | None = None,
        **child: Any,
    ) -> str:
        mine = Families(self._scope.owning(session))
        return mine.branch(session, at_message, _minted(child), end_parent, lease_epoch)

    def reset(
        self, session: str, *, reason: str = "session_reset", lease_epoch: int | None = None, **child: Any
    ) -> str:
        return Families(self._scope.owning(session)).reset(session, reason, _minted(child), lease_epoch)

    def undo_reset(self, session_id: str) -> str:
        return Families(self._scope.owning(session_id)).undo_reset(session_id)

    def delegate(self, parent: str, *, lease_epoch: int | None = None, **child: Any) -> str:
        return Families(self._scope.owning(parent)).delegate(parent, _minted(child), lease_epoch)

    # ---------------------------------------------------------------- who works in it, and which chat is in it

    def acquire_lease(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        return Leases(self._scope.owning(session_id)).acquire(session_id, surface, seconds)

    def take_over_lease(self, session_id: str, surface: str, seconds: float = 60.0) -> Lease:
        return Leases(self._scope.owning(session_id)).take_over(session_id, surface, seconds)

    def renew_lease(self, lease: Lease, seconds: float = 60.0) -> Lease:
        return Leases(self._scope.owning(lease.session_id)).renew(lease, seconds)

    def release_lease(self, lease: Lease) -> bool:
        mine = Leases(self._scope.owning(lease.session_id))
        return bool(self._if_mine(lambda: mine.release(lease)))

    def lease_holder(self, session_id: str) -> Lease | None:
        return Leases(self._scope).holder(session_id)

    def follow(self, session_id: str, after_message_id: int = 0) -> list[Row]:
        return Leases(self._scope).follow(session_id, after_message_id)

    def route(
        self, session_key: str, session_id: str, *, alone: bool = False, entry: Row | None = None
    ) -> Route:
        """Put the chat that this person speaks in into a session; `alone`, their own part of a shared chat."""
        who = self.principal
        return Routing(self._scope.owning(session_id)).route(
            session_key,
            who.platform,
            who.chat_type,
            who.chat,
            who.thread,
            who.user if alone else "",
            session_id,
            entry,
        )

    def routed(self, session_key: str) -> Route | None:
        return Routing(self._scope).get(session_key)

    def live_session(self, session_key: str) -> str | None:
        """Where the chat of this key goes on now; a row that lags behind is put right."""
        route = self.routed(session_key)
        if route is None:
            return None
        return Routing(self._scope.owning(route.session_id)).live_session(session_key)

    def switch_session(self, session_key: str, session_id: str) -> Route | None:
        """Go on in another session in the chat of this key; None for no such chat."""
        route = self.routed(session_key)
        if route is None:
            return None
        return Routing(self._scope.owning(session_id, route.session_id)).switch(session_key, session_id)

    def recover_session(self, session_key: str | None = None, *, alone: bool = False) -> str | None:
        """The session this person's chat was in, when its routing was lost."""
        who = self.principal
        return Routing(self._scope).recover(
            who.platform,
            who.chat_type,
            who.chat,
            who.thread,
            who.user if alone else "",
            session_key=session_key,
        )

    # ---------------------------------------------------------------- lists, search, export

    def list_sessions_rich(self, **how: Any) -> list[Row]:
        return Listing(self._scope).rich(**how)

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[Row]:
        return Listing(self._scope).by_activity(source, limit, offset)

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        **how: Any,
    ) -> SearchResults:
        search = MessageSearch(self._scope)
        return search.search(query, source_filter, exclude_sources, role_filter, limit, offset, **how)

    def search_sessions_ranked(
        self, query: str | Sequence[str], limit: int = 10, **how: Any
    ) -> SearchResults:
        from hermes.recall.ranking import ConversationSearch

        return ConversationSearch(self._scope).search(query, limit, **how)

    def list_conversations(
        self,
        wanted: Wanted | None = None,
        *,
        limit: int = 20,
        offset: int = 0,
        include_hidden: bool = False,
        order: str = "activity",
        pinned_first: bool = False,
    ) -> ConversationPage:
        return Listing(self._scope).conversations(
            wanted or Wanted(),
            limit=limit,
            offset=offset,
            include_hidden=include_hidden,
            order=order,
            pinned_first=pinned_first,
        )

    def export_session(self, session_id: str) -> Row | None:
        return Transfer(self._scope).export(session_id)

    def iter_export(self, source: str | None = None) -> Iterator[Row]:
        return Transfer(self._scope).iter_export(source)

    # ---------------------------------------------------------------- keeping, trash, what it cost

    def pin_session(self, session_id: str, pinned: bool = True, *, segment: bool = False) -> bool:
        mine = Keeping(self._scope.owning(session_id))
        return bool(self._if_mine(lambda: mine.pin(session_id, pinned, segment)))

    def set_session_archived(self, session_id: str, archived: bool, *, segment: bool = False) -> bool:
        mine = Keeping(self._scope.owning(session_id))
        return bool(self._if_mine(lambda: mine.archive(session_id, archived, segment)))

    def add_tags(self, session_id: str, *tags: str) -> list[str]:
        return Keeping(self._scope.owning(session_id)).add_tags(session_id, *tags)

    def remove_tags(self, session_id: str, *tags: str) -> list[str]:
        mine = Keeping(self._scope.owning(session_id))
        return self._if_mine(lambda: mine.remove_tags(session_id, *tags)) or []

    def tags_of(self, session_id: str) -> list[str]:
        return Keeping(self._scope).tags_of(session_id)

    def all_tags(self) -> list[tuple[str, int]]:
        return Keeping(self._scope).all_tags()

    def trash_session(self, session_id: str, segment: bool = False) -> list[str]:
        mine = Trash(self._scope.owning(session_id))
        return self._if_mine(lambda: mine.put(session_id, segment)) or []

    def restore_session(self, session_id: str) -> list[str]:
        mine = Trash(self._scope.owning(session_id))
        return self._if_mine(lambda: mine.restore(session_id)) or []

    def list_trash(self, trash_days: float = 30) -> list[Row]:
        return Trash(self._scope).contents(trash_days)

    def record_usage(self, session_id: str, *, at: float | None = None, **call: Any) -> int:
        return UsageRecords(self._scope.owning(session_id)).record(session_id, ModelCall(**call), at)

    def usage_of(self, session_id: str, family: bool = False) -> UsageTotals:
        return UsageRecords(self._scope).of(session_id, family)

    def usage_by_model(self, since: float | None = None, until: float | None = None) -> UsageTotals:
        return UsageRecords(self._scope).by_model(since, until)

    @staticmethod
    def _if_mine(verb: Callable[[], T]) -> T | None:
        """For verbs that say nothing of a session that is not there."""
        try:
            return verb()
        except errors.UnknownSession:
            return None


def _minted(child: dict[str, Any]) -> Child:
    """Ids are not for people to choose here: a refused one would tell that it exists."""
    if "session_id" in child:
        raise errors.raised(errors.InvalidArgument, "the id of a new session cannot be chosen here")
    return Child.of(**child)
