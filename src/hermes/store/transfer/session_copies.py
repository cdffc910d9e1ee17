"""Comparison of an incoming session with its stored copies, and the decision how to merge them.

A stored copy is the session with the same id, or a branch that an earlier merge created from that session.
`merge` applies the decision. This module only reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from hermes.store.content import format_uid, from_json
from hermes.store.engine import Reader
from hermes.store.people import LOCAL
from hermes.store.sessions.sessions import SELECT_ROW
from hermes.store.sessions.titles import CONTINUED
from hermes.store.transfer import import_policy
from hermes.store.transfer.incoming_session import IncomingSession, make_comparable
from hermes.store.transfer.merge_plan import (
    Plan,
    Side,
    Transcript,
    find_branch_origin,
    name_branch,
    plan_messages,
)
from hermes.store.transfer.stored_messages import Stored

MESSAGES_HERE = "SELECT id, uid, active FROM messages WHERE session_id = ? ORDER BY id"
CONTENTS_HERE = """SELECT id, role, content, content_kind, tool_call_id, tool_calls, tool_name FROM messages
    WHERE session_id = ? ORDER BY id"""
MOVED_HERE = """SELECT m.id, m.uid FROM carried_context c JOIN messages m
    ON m.id BETWEEN c.first_message_id AND c.last_message_id AND m.session_id = c.session_id WHERE c.session_id = ?"""
# Includes all branches that merges created. `find_branch_origin` returns the session of each.
BRANCHES = "SELECT id FROM sessions WHERE id >= 'branch_' AND id < 'branch`'"


class Copy(NamedTuple):
    """A stored session that is compared with an incoming session."""

    id: str
    row: dict[str, Any]
    ids: list[int]
    """The ids of its messages, in order."""
    transcript: Transcript

    @property
    def is_untrusted(self) -> bool:
        """Return whether an untrusted import created the session."""
        config = self.row["model_config"]
        return bool(from_json(config or "null", None) == import_policy.UNTRUSTED_CONFIG)


class Merge(NamedTuple):
    """The decision about an incoming session that has a stored copy."""

    session: Copy
    target: Copy
    """The session to which the messages are appended, or from which the new branch starts. It is `session` or
    an earlier branch of it."""
    branch: str | None
    """The id of the branch to create. None if messages are appended."""
    plan: Plan
    places: list[int]
    """The positions of the incoming messages that the plan covers."""
    ids: list[int]
    """The stored id of every incoming message, or 0 if the message is not stored."""
    visited: list[str]
    """The ids of the stored sessions that were compared with the incoming one: `session`, and earlier
    branches of it."""
    is_alias: bool
    """Whether the incoming session is a branch that another store created and whose messages are in
    `session`."""

    @property
    def missing(self) -> list[int]:
        return [self.places[place] for place in self.plan.missing]

    @property
    def is_branched(self) -> bool:
        """Return whether the last messages of the incoming copy are in a branch. The branch may exist already
        or be created by this import."""
        return self.branch is not None or self.target.id != self.session.id

    @property
    def newer_side(self) -> Side | None:
        return "here" if self.is_branched else self.plan.newer_side


def read_copy(reader: Reader, session_id: str, incoming: Transcript) -> Copy | None:
    """Read a stored session, with the id `session_id`, for comparison with an incoming session. None if it does
    not exist.

    Messages that were written in another session and later moved to the stored session are left out, unless the
    incoming session contains them too.
    """
    row = reader.dict(SELECT_ROW, session_id)
    if row is None:
        return None
    moved = {
        number for number, uid in reader.rows(MOVED_HERE, session_id) if format_uid(uid) not in incoming.uids
    }
    messages = [message for message in reader.rows(MESSAGES_HERE, session_id) if message[0] not in moved]
    contents: list[Any] = []

    def read_contents() -> Sequence[Any]:
        if not contents:
            rows = reader.rows(CONTENTS_HERE, session_id)
            contents.extend(make_comparable(*shape) for number, *shape in rows if number not in moved)
        return contents

    transcript = Transcript(
        [format_uid(uid) for _id, uid, _active in messages],
        [bool(active) for _id, _uid, active in messages],
        read_contents,
        row["rewind_count"] or 0,
        reader.value(CONTINUED, session_id) is not None,
    )
    return Copy(session_id, row, [message[0] for message in messages], transcript)


def find_merge(
    reader: Reader,
    session_id: str,
    incoming_session: IncomingSession,
    *,
    trusted: bool,
    is_alias: bool = False,
    moved: Mapping[int, Stored] = MappingProxyType({}),
) -> Merge | None:
    """Compare an incoming session with the stored session of this id. Return None if they are unrelated.

    An untrusted import appends messages only to a session that an untrusted import created. For any other
    session, the new messages become a branch. A session of another owner is not changed. `moved` contains the
    incoming messages that are now stored in another session. Its keys are positions in the incoming session.
    """
    incoming = incoming_session.make_transcript()
    session = target = read_copy(reader, session_id, incoming)
    ids = [0] * len(incoming.uids)
    for place, stored in moved.items():
        if not is_same_family(stored.session_id, session_id):
            ids[place] = stored.id
    places = [place for place, message_id in enumerate(ids) if not message_id]
    visited: list[str] = []
    while session is not None and target is not None:
        visited.append(target.id)
        part = incoming if len(places) == len(ids) else incoming.select(places)
        plan = plan_messages(target.transcript, part, may_append=trusted or target.is_untrusted)
        if not _can_merge(session, incoming_session, plan, trusted=trusted):
            return None
        for place, match in zip(places, plan.matches, strict=True):
            ids[place] = 0 if match is None else target.ids[match]
        branch, following = None, None
        if plan.action in ("branch", "unrelated"):
            branch, following = _find_branch(reader, session_id, part.select(plan.missing), visited)
        if following is not None:
            places, target = [places[at] for at in plan.missing], following
            continue
        merge = Merge(session, target, branch, plan, places, ids, visited, is_alias)
        return _leave_out_elsewhere(reader, merge, incoming)
    return None


def _can_merge(session: Copy, incoming_session: IncomingSession, plan: Plan, *, trusted: bool) -> bool:
    if plan.missing and not trusted and session.row["owner"] != LOCAL:
        return False
    if plan.action != "unrelated":
        return True
    # If id, source and start are equal and the messages have uids, the copy was made while the session was
    # empty.
    return (
        incoming_session.start_known
        and all(session.transcript.uids)
        and all(incoming_session.make_transcript().uids)
    )


def _leave_out_elsewhere(reader: Reader, merge: Merge, incoming: Transcript) -> Merge:
    """Return `merge` changed so that no message is stored a second time. A missing message that another branch
    of the same session already contains is not added again."""
    elsewhere = _find_elsewhere(reader, merge.session.id, incoming, merge.missing, merge.visited)
    if not elsewhere:
        return merge
    ids = list(merge.ids)
    for place, (_branch, message_id) in elsewhere.items():
        ids[place] = message_id
    missing = [at for at in merge.plan.missing if merge.places[at] not in elsewhere]
    if missing:
        branch, visited = merge.branch, list(merge.visited)
        rest = incoming.select([merge.places[at] for at in missing])
        while branch is not None:
            branch, taken = _find_branch(reader, merge.session.id, rest, visited)
            if taken is None:
                break
            visited.append(branch)
        return merge._replace(branch=branch, plan=merge.plan._replace(missing=missing), ids=ids)
    last = elsewhere[merge.missing[-1]][0]
    return merge._replace(
        target=read_copy(reader, last, incoming) or merge.target,
        branch=None,
        plan=Plan("unchanged", [], [], 0),
        places=[],
        ids=ids,
        visited=[*merge.visited, last],
    )


def _find_branch(
    reader: Reader, session_id: str, incoming: Transcript, visited: Sequence[str]
) -> tuple[str, Copy | None]:
    """Find the branch of `session_id` that an earlier merge created for the same messages. `incoming` contains
    the messages that the branch must have. Return (id of the branch, its stored copy). If there is no such
    branch, return an unused id and None. Branches in `visited` are skipped."""
    first = incoming.identify(0)
    while True:
        branch = name_branch(session_id, first)
        copy = read_copy(reader, branch, incoming)
        if copy is None:
            return branch, None
        if branch not in visited and plan_messages(copy.transcript, incoming).action != "unrelated":
            return branch, copy
        first += "'"  # this id is in use by an unrelated session, or by a branch that lost its messages


def _find_elsewhere(
    reader: Reader, session_id: str, incoming: Transcript, places: Sequence[int], visited: Sequence[str]
) -> dict[int, tuple[str, int]]:
    """Find those incoming messages at the positions `places` that another branch of `session_id` contains.
    Return a dict: position in the incoming session → (id of the branch, id of the stored message). Branches in
    `visited` are skipped."""
    places_by_uid = {incoming.uids[place]: place for place in places if incoming.uids[place]}
    found: dict[int, tuple[str, int]] = {}
    for member in _find_family(reader, session_id) if places_by_uid else ():
        if member not in visited:
            for message_id, uid, _active in reader.rows(MESSAGES_HERE, member):
                place = places_by_uid.get(format_uid(uid))
                if place is not None:
                    found[place] = (member, message_id)
    return found


def _find_family(reader: Reader, session_id: str) -> list[str]:
    """Return the id of the session and the ids of the branches that merges created from it. Return an empty
    list if there are no such branches."""
    origin = find_branch_origin(session_id) or session_id
    branches = [row[0] for row in reader.rows(BRANCHES) if find_branch_origin(row[0]) == origin]
    return [origin, *branches] if branches else []


def is_same_family(session_id: str, other: str) -> bool:
    """Return whether two sessions are the same, or are branches that merges created from the same session."""
    return (find_branch_origin(session_id) or session_id) == (find_branch_origin(other) or other)


def find_alias(reader: Reader, incoming_session: IncomingSession, parent: str | None) -> str | None:
    """Return the stored session that contains the messages of an incoming branch, which another store
    created. None if there is none.

    If two stores exchange diverged copies of a session, each store has its own messages in the session, and
    the messages of the other store in a branch. The branch in the other store therefore has the messages of
    the session in this store.
    """
    origin = find_branch_origin(incoming_session.id)
    first = format_uid(incoming_session.messages[0][-1]) if incoming_session.messages else None
    if origin is None or first is None or name_branch(origin, first) != incoming_session.id:
        return None
    for candidate in dict.fromkeys((parent, origin, *_find_family(reader, origin))):
        rows = reader.rows(MESSAGES_HERE, candidate) if candidate is not None else []
        if any(format_uid(uid) == first for _id, uid, _active in rows):
            return candidate
    return None
