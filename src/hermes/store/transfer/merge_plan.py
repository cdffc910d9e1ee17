"""Plan for merging two copies of a session. These functions are pure: they do not access a store.

Two messages are the same if their uids are equal. A message that another program wrote has no uid. It is the
same as another message if role, content and tool call are equal, and if the order of the messages agrees.

The stored copy can lack messages of the incoming copy, have additional messages, or both:

- Only the incoming copy has more: the missing messages are appended.
- Only the stored copy has more: nothing changes.
- Both have more: the copies diverged. The incoming messages become a branch.

A title, a tag or an end has no modification time. `Base` therefore contains the values of both copies at
their last merge. A value that differs from its base has changed since then. Without a base, the merge takes
the value of the copy with the newer messages. The end of a session always comes from that copy, because a
message after the end means that the session was reopened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from hermes.store.sessions.title_notes import BY_STORE, digest_label

Action = Literal["unchanged", "append", "branch", "unrelated"]
Side = Literal["here", "incoming"]


class Transcript(NamedTuple):
    """The messages of one copy of a session, in order."""

    uids: Sequence[str | None]
    is_live: Sequence[bool]
    """False for messages that a rewind took out of the conversation."""
    read_contents: Callable[[], Sequence[Any]]
    """Returns the comparison keys of all messages. It may have to read all contents, so it is called only if
    a uid is missing."""
    rewinds: int = 0
    is_continued: bool = False
    """Whether the conversation continues in a later session."""

    def select(self, places: Sequence[int]) -> Transcript:
        """Return a transcript that contains only those messages of this transcript that are at the positions
        `places`."""
        return self._replace(
            uids=[self.uids[place] for place in places],
            is_live=[self.is_live[place] for place in places],
            read_contents=lambda: [self.read_contents()[place] for place in places],
        )

    def identify(self, place: int) -> str:
        """Return a text that identifies the message at the position `place` of this transcript: its uid or, if
        it has none, its content."""
        return self.uids[place] or repr(self.read_contents()[place])


class Plan(NamedTuple):
    """What to do with the messages of an incoming copy of a session."""

    action: Action
    matches: list[int | None]
    """For each incoming message, its position in the stored copy. None if the stored copy lacks the
    message."""
    missing: list[int]
    """The positions of the incoming messages that are missing in the stored copy."""
    newer_here: int
    """The number of messages that only the stored copy has, counted after the first message that both copies
    have."""
    to_rewind: Sequence[int] = ()
    """Positions of stored messages that are live in the stored copy and rewound in the newer incoming
    copy."""
    to_restore: Sequence[int] = ()
    """Positions of stored messages that are rewound in the stored copy and live in the newer incoming
    copy."""
    is_rewound_since: bool = False
    """Whether the incoming copy differs only by a later rewind. The rewind may affect only carried
    messages."""

    @property
    def newer_side(self) -> Side | None:
        """Return which copy of the session has newer messages or a newer rewind, `incoming` or `here` (the
        stored copy). If the incoming messages become a branch, return `here`. None if neither copy is newer, or
        if that is unknown."""
        if self.action == "append" or self.is_rewound_since:
            return "incoming"
        return "here" if self.newer_here or self.action == "branch" else None


def plan_messages(here: Transcript, incoming: Transcript, *, may_append: bool = True) -> Plan:
    """Compare the messages of two copies of a session, the stored one (`here`) and the incoming one. Return
    what to do with the incoming messages. If `may_append` is false, the stored copy must not be changed, and
    messages that it lacks become a branch."""
    matches = match_messages(here, incoming)
    missing = [place for place, match in enumerate(matches) if match is None]
    known = {match for match in matches if match is not None}
    if here.uids and incoming.uids and not known:
        return Plan("unrelated", matches, missing, len(here.uids))
    first = min(known, default=-1)
    newer_here = sum(place not in known for place in range(first + 1, len(here.uids)))
    changes = _compare_rewinds(here, incoming, matches)
    if not missing:
        if may_append and incoming.rewinds > here.rewinds and not newer_here:
            return Plan("unchanged", matches, missing, newer_here, *changes, is_rewound_since=True)
        return Plan("unchanged", matches, missing, newer_here)
    if may_append and _is_extension(here, incoming, matches, missing[0], known):
        return Plan("append", matches, missing, newer_here, *changes)
    return Plan("branch", matches, missing, newer_here)


def _is_extension(
    here: Transcript,
    incoming: Transcript,
    matches: Sequence[int | None],
    first_missing: int,
    known: set[int],
) -> bool:
    """Return whether the incoming copy of a session has all messages of the stored copy, followed by additional
    messages at its end."""
    if any(match is not None for match in matches[first_missing:]):
        return False  # messages in the middle were removed here or added in the incoming copy
    shared = [match for match in matches if match is not None]
    if shared != sorted(shared):
        return False  # the order differs
    last = matches[first_missing - 1] if first_missing else None
    start = 0 if last is None else last + 1
    if any(place not in known for place in range(start, len(here.uids))):
        return False
    if here.is_continued and not incoming.is_continued:
        return False  # the stored copy continues in another session
    is_rewound_here = any(
        match is not None and is_live and not here.is_live[match]
        for match, is_live in zip(matches, incoming.is_live, strict=True)
    )
    return not (is_rewound_here and here.rewinds > incoming.rewinds)


def _compare_rewinds(
    here: Transcript, incoming: Transcript, matches: Sequence[int | None]
) -> tuple[list[int], list[int]]:
    """Compare which messages are rewound in the two copies of a session. Return (messages rewound only in the
    incoming copy, messages rewound only in the stored copy). Each message is given by its position in the
    stored copy. `matches` is the result of `match_messages`."""
    differing = [
        match
        for match, is_live in zip(matches, incoming.is_live, strict=True)
        if match is not None and here.is_live[match] != is_live
    ]
    return (
        [match for match in differing if here.is_live[match]],
        [match for match in differing if not here.is_live[match]],
    )


def match_messages(here: Transcript, incoming: Transcript) -> list[int | None]:
    """Return, for each incoming message, its position in the stored copy. None if the stored copy lacks the
    message."""
    by_uid = {uid: place for place, uid in enumerate(here.uids) if uid}
    matches = [by_uid.get(uid) if uid else None for uid in incoming.uids]
    if None not in matches or (all(here.uids) and all(incoming.uids)):
        return matches
    ordered = _match_in_order(here, incoming, matches)
    # Short contents such as "yes" occur often. If messages are missing, equal contents therefore count as the
    # same message only in the common beginning of both copies.
    return _match_beginning(here, incoming, matches) if None in ordered else ordered


def _match_in_order(here: Transcript, incoming: Transcript, by_uid: Sequence[int | None]) -> list[int | None]:
    places: dict[Any, list[int]] = {}
    for place, content in enumerate(here.read_contents()):
        places.setdefault(content, []).append(place)
    matches: list[int | None] = []
    after = 0
    for uid, known, content in zip(incoming.uids, by_uid, incoming.read_contents(), strict=True):
        found = known
        if found is None:
            candidates = places.get(content, [])
            later = candidates[bisect_left(candidates, after) :]
            found = next((place for place in later if not (uid and here.uids[place])), None)
        if found is not None:
            after = found + 1
        matches.append(found)
    return matches


def _match_beginning(
    here: Transcript, incoming: Transcript, by_uid: Sequence[int | None]
) -> list[int | None]:
    matches = list(by_uid)
    pairs = zip(here.read_contents(), incoming.read_contents(), strict=False)
    for place, (content_here, content) in enumerate(pairs):
        if matches[place] is None:
            if (here.uids[place] and incoming.uids[place]) or content_here != content:
                break
            matches[place] = place
    return matches


# ---------------------------------------------------------------- branches


BRANCH_PREFIX = "branch_"
_DIGEST_SIZE = 6


def name_branch(session_id: str, first_message: str) -> str:
    """Return the id of a branch of the session `session_id`. `first_message` is the first new message of the
    branch.

    The id is the same in every store. The next import therefore finds the branch, and other stores can find
    its messages.
    """
    digest = blake2b(first_message.encode(errors="replace"), digest_size=_DIGEST_SIZE).hexdigest()
    return f"{BRANCH_PREFIX}{digest}_{find_branch_origin(session_id) or session_id}"


def find_branch_origin(branch_id: str) -> str | None:
    """Return the session from which a merge created this branch. None if `branch_id` is not the id of a
    branch that a merge created."""
    prefix, _, rest = branch_id.partition("_")
    digest, _, origin = rest.partition("_")
    is_digest = len(digest) == 2 * _DIGEST_SIZE and set(digest) <= set("0123456789abcdef")
    return origin if prefix + "_" == BRANCH_PREFIX and is_digest and origin else None


# ---------------------------------------------------------------- titles, tags, ends


class Labels(NamedTuple):
    """The values of a session that people and programs change, apart from its messages."""

    title: str | None = None
    title_by: str | None = None
    end: tuple[float | None, str | None] = (None, None)
    is_archived: bool = False
    pinned_at: float | None = None
    tags: frozenset[str] = frozenset()


Marks = Mapping[str, Any]
"""Digests of the labels of one copy. A change of a label changes its digest, but a digest contains no text
that a purge would have to remove."""


class Base(NamedTuple):
    """The labels of both copies at their last merge."""

    here: Marks
    incoming: Marks


def mark_labels(labels: Labels) -> Marks:
    found = {
        "title": digest_label(labels.title),
        "end": digest_label(labels.end if labels.end[0] is not None else None),
        "archived": int(labels.is_archived),
        "pinned": int(labels.pinned_at is not None),
        "tags": sorted(filter(None, map(digest_label, labels.tags))),
    }
    return {name: value for name, value in found.items() if value}


def merge_labels(
    here: Labels, incoming: Labels, base: Base | None, newer: Side | None, *, is_former_title: bool = False
) -> Labels:
    """Return the labels of the merged session. `newer` is the copy with the newer messages, or None if that
    is unknown.

    `is_former_title` means that the stored copy had the incoming title before, and a person replaced it.
    """

    def choose(name: str, decide: Callable[[], bool]) -> bool:
        """Return whether to use the incoming value of the label `name`. If `base` shows which copy has changed
        the label, that decides. Otherwise return `decide()`."""
        if base is not None:
            if mark_labels(incoming).get(name) == base.incoming.get(name):
                return False
            if mark_labels(here).get(name) == base.here.get(name):
                return True
        return decide()

    def is_title_better() -> bool:
        return not is_former_title and _has_better_title(here, incoming, newer)

    merged = here
    is_original = incoming.title_by != BY_STORE or here.title is None
    if is_original and choose("title", is_title_better):
        merged = merged._replace(title=incoming.title, title_by=incoming.title_by)
    if newer == "incoming" or (newer is None and choose("end", lambda: _has_later_end(here, incoming))):
        merged = merged._replace(end=incoming.end)
    if choose("archived", lambda: newer == "incoming"):
        merged = merged._replace(is_archived=incoming.is_archived)
    is_pin_changed = (here.pinned_at is None) != (incoming.pinned_at is None)
    if is_pin_changed and choose("pinned", lambda: here.pinned_at is None):
        merged = merged._replace(pinned_at=incoming.pinned_at)
    return merged._replace(tags=_merge_tags(here.tags, incoming.tags, base))


def _has_better_title(here: Labels, incoming: Labels, newer: Side | None) -> bool:
    if incoming.title is None or incoming.title == here.title:
        return False
    if here.title is None:
        return True
    by_person = (here.title_by == "person", incoming.title_by == "person")
    return by_person[1] if by_person[0] != by_person[1] else newer == "incoming"


def _has_later_end(here: Labels, incoming: Labels) -> bool:
    return incoming.end[0] is not None and (here.end[0] is None or incoming.end[0] > here.end[0])


def _merge_tags(here: frozenset[str], incoming: frozenset[str], base: Base | None) -> frozenset[str]:
    """Return the tags of the merged session: the tags of both copies. A tag that only one copy has is left out
    if it existed at the last merge, because the other copy has lost it since."""
    before = base.incoming.get("tags", ()) if base is not None else ()
    return here & incoming | {tag for tag in here ^ incoming if digest_label(tag) not in before}
