"""The store in the scope of one person: rows of other owners do not exist.

For reads, views replace the tables on a scoped connection (see scope.sql), so that no query can omit the
scope. For writes, the owner of each session that a method names is first checked, in the same transaction. A
session of another owner is treated as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from hermes import errors
from hermes.store.engine import Reader, Writer
from hermes.store.sqlite.connection import run

if TYPE_CHECKING:
    from hermes.store.query_tree import Node
    from hermes.store.sqlite.engine import SqliteEngine
    from hermes.store.values import Candidates, Hit, MessageFilter, SearchAnswer, SearchRequest

T = TypeVar("T")
Owners = tuple[str, ...]

MOST_OWNERS = 2
"""The maximum number of owners in a scope: a person, and the room in which they write."""

SET_OWNERS = "UPDATE hermes_scope SET owner = CASE place WHEN 0 THEN ? ELSE ? END"
OWNED = "SELECT 1 FROM sessions WHERE id = ? AND owner IN (?, ?) AND owner <> ''"


def _pad_owners(owners: Owners) -> tuple[str | None, ...]:
    return (*owners, None, None)[:MOST_OWNERS]


class ScopedConnection:
    """A reading connection on which only the rows of some owners exist. The owners are set before each use."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._owners: Owners | None = None
        run(connection, Path(__file__).with_name("scope.sql").read_text(encoding="utf-8"))

    def is_for(self, owners: Owners) -> None:
        """Set the owners whose rows are visible on this connection. Call this before each use."""
        if owners != self._owners:
            self._owners = None  # if the update is interrupted, the owners are unknown
            run(self.connection, SET_OWNERS, *_pad_owners(owners))
            self._owners = owners


class ScopedEngine:
    """An engine limited to the rows of some owners. See `hermes.store.engine.Scoped`."""

    def __init__(self, engine: SqliteEngine, owners: Owners, sessions: tuple[str, ...] = ()) -> None:
        if len(owners) > MOST_OWNERS or "" in owners:
            raise errors.make_error(
                errors.InvalidArgument, f"these are not valid owners for a scope: {owners!r}"
            )
        self._engine = engine
        self._owners = owners
        self._sessions = sessions

    @property
    def path(self) -> Path:
        return self._engine.path

    @property
    def read_only(self) -> bool:
        return self._engine.read_only

    def owning(self, *session_ids: str) -> ScopedEngine:
        return ScopedEngine(self._engine, self._owners, session_ids)

    def read(self, *, settled: bool = False, wait: bool = True) -> AbstractContextManager[Reader]:
        return self._engine.read(settled=settled, wait=wait, owners=self._owners)

    def write(self, work: Callable[[Writer], T], *, share: bool = True, repeatable: bool = True) -> T:
        if not self._sessions:
            raise errors.make_error(
                errors.InvalidArgument, "a scoped write must name the sessions that it changes"
            )
        allowed = _pad_owners(self._owners)

        def work_if_owned(writer: Writer) -> T:
            for session_id in self._sessions:
                if writer.value(OWNED, session_id, *allowed) is None:
                    raise errors.make_error(errors.UnknownSession, f"session {session_id!r} does not exist")
            return work(writer)

        return self._engine.write(work_if_owned, share=share, repeatable=repeatable)

    def share_deadline(self) -> AbstractContextManager[None]:
        return self._engine.share_deadline()

    def search(self, tree: Node, request: SearchRequest) -> SearchAnswer:
        return self._engine.search(tree, request, owners=self._owners)

    def hits_of(self, ids: Sequence[int]) -> list[Hit]:
        return self._engine.hits_of(ids, owners=self._owners)

    def candidates(
        self,
        terms: Sequence[str],
        wanted: MessageFilter,
        *,
        must: Node | None = None,
        days: Sequence[tuple[float, float]] = (),
    ) -> Candidates:
        return self._engine.candidates(terms, wanted, must=must, days=days, owners=self._owners)

    def delete_messages(self, writer: Writer, session_id: str) -> int:
        return self._engine.delete_messages(writer, session_id)
