"""Plan the merge of two copies of a session. Pure: it reads and writes no store, and serves any engine.

Messages are the same if their uids are equal. If one of the two has no uid (another program wrote it), they are the
same if role, content and tool call are equal and they stand in the same order.

The copy here can lack messages of the incoming one, have more of its own, or both:

- incoming has more: the messages that are missing here are appended.
- here has more: nothing changes.
- both have more: the copies diverged. The incoming messages become a branch.

A title, a tag or an end has no time of change of its own. `Base` is what both copies looked like at their last merge: a
value that differs from it was changed since. Without a base the copy with the newer messages decides. It always decides
about the end: who said something after it has taken the session up again.
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
    """What a message is compared by if a uid is missing. Called only then: it may read every content."""
    rewinds: int = 0
    is_continued: bool = False
    """Whether the conversation goes on in a later session."""

    def select(self, places: Sequence[int]) -> Transcript:
        """Only the messages at these places."""
        return self._replace(
            uids=[self.uids[place] for place in places],
            is_live=[self.is_live[place] for place in places],
            read_contents=lambda: [self.read_contents()[place] for place in places],
        )

    def identify(self, place: int) -> str:
        """What a message is known by, as a text."""
        return self.uids[place] or repr(self.read_contents()[place])


class Plan(NamedTuple):
    """What to do with the messages of an incoming copy."""

    action: Action
    matches: list[int | None]
    """For each incoming message its place in the copy here."""
    missing: list[int]
    """The incoming messages that are not here."""
    newer_here: int
    """How many messages only the copy here has."""
    to_rewind: Sequence[int] = ()
    """Messages here that were rewound in the incoming copy since."""
    to_restore: Sequence[int] = ()
    """Messages here that were brought back in the incoming copy since."""
    is_rewound_since: bool = False
    """Whether the incoming copy, else the same, was rewound since. It may have lost only what it carried."""

    @property
    def newer_side(self) -> Side | None:
        """Which copy went on since the two were the same; None if neither or not known."""
        if self.action == "append" or self.is_rewound_since:
            return "incoming"
        return "here" if self.newer_here or self.action == "branch" else None


def plan_messages(here: Transcript, incoming: Transcript, *, may_append: bool = True) -> Plan:
    """Compare two copies. Without `may_append` the copy here stays as it is: what is missing becomes a branch."""
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
    """Whether the incoming copy is the copy here with more at its end."""
    if any(match is not None for match in matches[first_missing:]):
        return False  # messages in the middle were removed here, or added there
    shared = [match for match in matches if match is not None]
    if shared != sorted(shared):
        return False  # they stand in another order here
    last = matches[first_missing - 1] if first_missing else None
    start = 0 if last is None else last + 1
    if any(place not in known for place in range(start, len(here.uids))):
        return False
    if here.is_continued and not incoming.is_continued:
        return False  # it goes on elsewhere here
    is_rewound_here = any(
        match is not None and is_live and not here.is_live[match]
        for match, is_live in zip(matches, incoming.is_live, strict=True)
    )
    return not (is_rewound_here and here.rewinds > incoming.rewinds)


def _compare_rewinds(
    here: Transcript, incoming: Transcript, matches: Sequence[int | None]
) -> tuple[list[int], list[int]]:
    """(live here and rewound in the incoming copy, the other way round)."""
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
    """For each incoming message its place in the copy here, or None."""
    by_uid = {uid: place for place, uid in enumerate(here.uids) if uid}
    matches = [by_uid.get(uid) if uid else None for uid in incoming.uids]
    if None not in matches or (all(here.uids) and all(incoming.uids)):
        return matches
    ordered = _match_in_order(here, incoming, matches)
    # Equal contents ("yes") prove little once something is missing: then only a common beginning counts.
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
    """The id of the branch that starts with a message.

    The same divergence gets the same id in every store. So the next import finds the branch, and other stores can tell
    where its messages are.
    """
    digest = blake2b(first_message.encode(errors="replace"), digest_size=_DIGEST_SIZE).hexdigest()
    return f"{BRANCH_PREFIX}{digest}_{find_branch_origin(session_id) or session_id}"


def find_branch_origin(branch_id: str) -> str | None:
    """The session of which a merge made this branch; None for other sessions."""
    prefix, _, rest = branch_id.partition("_")
    digest, _, origin = rest.partition("_")
    is_digest = len(digest) == 2 * _DIGEST_SIZE and set(digest) <= set("0123456789abcdef")
    return origin if prefix + "_" == BRANCH_PREFIX and is_digest and origin else None


# ---------------------------------------------------------------- titles, tags, ends


class Labels(NamedTuple):
    """What people and programs change of a session beside its messages."""

    title: str | None = None
    title_by: str | None = None
    end: tuple[float | None, str | None] = (None, None)
    is_archived: bool = False
    pinned_at: float | None = None
    tags: frozenset[str] = frozenset()


Marks = Mapping[str, Any]
"""The labels of one copy as digests: enough to see a change, and no text that would have to be purged."""


class Base(NamedTuple):
    """The labels of both copies when they were merged last."""

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
    """The labels of the merged session. `newer` is the copy with the newer messages, if that is known.

    `is_former_title` says that a person replaced the incoming title here.
    """

    def choose(name: str, decide: Callable[[], bool]) -> bool:
        """Whether the incoming value is taken."""
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
    """Take every tag of either copy, but those that one of them lost since the last merge."""
    before = base.incoming.get("tags", ()) if base is not None else ()
    return here & incoming | {tag for tag in here ^ incoming if digest_label(tag) not in before}
