"""Merge of an incoming copy of a session into the stored copy.

`session_copies` compares the copies and decides what to do. `apply_merge` applies the decision in the
caller's transaction.

If the copies have diverged, the incoming messages become a branch. This is a separate session that contains
only the messages that are new in this store, and carries the others. If the branch already exists, the
remaining messages are merged into it in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hermes.store import derived, meta
from hermes.store.columns import SESSIONS, list_session_names
from hermes.store.content import from_json, to_json
from hermes.store.engine import Reader, Writer
from hermes.store.reports.usage import INSERT as RECORD_CALL
from hermes.store.sessions import blobs, carried_context
from hermes.store.sessions.labels import ADD_TAG, REMOVE_TAG, TAGS_OF
from hermes.store.sessions.rewind import NOTE_TAKEN
from hermes.store.sessions.sessions import SELECT_ROW, SETTLE_CHILDREN
from hermes.store.sessions.title_notes import BY_STORE
from hermes.store.sessions.title_notes import is_former as is_former_title
from hermes.store.sessions.titles import GET as GET_TITLE
from hermes.store.sessions.titles import HELD_BY, find_free_title
from hermes.store.sessions.titles import SET as SET_TITLE
from hermes.store.statements import make_completion, make_update
from hermes.store.transfer import import_policy
from hermes.store.transfer.incoming_session import (
    ACTIVE,
    INSERT_MESSAGE,
    INSERT_SESSION,
    REST,
    REWOUND_AT,
    TIMESTAMP,
    IncomingSession,
)
from hermes.store.transfer.merge_plan import (
    Base,
    Labels,
    find_branch_origin,
    mark_labels,
    merge_labels,
)
from hermes.store.transfer.session_copies import Copy, Merge

MODEL_CALLS = """SELECT at, model, provider, base_url, purpose, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status, cost_source,
    pricing_version FROM model_usage WHERE session_id = ? ORDER BY id"""
REWIND = "UPDATE messages SET active = 0, rewound_at = ? WHERE id = ?"
RESTORE = "UPDATE messages SET active = 1, rewound_at = NULL WHERE id = ?"
SET_LABELS = "UPDATE sessions SET ended_at = ?, end_reason = ?, archived = ?, pinned_at = ? WHERE id = ?"
COUNTER_COLUMNS = list_session_names(lambda column: column.merge == "higher")
SET_COUNTERS = make_update("sessions", COUNTER_COLUMNS)
# The latest model settings of the session. A value that the incoming copy lacks is kept.
DATA_COLUMNS = list_session_names(lambda column: column.merge == "newer" and not column.steers)
SET_DATA = make_completion("sessions", DATA_COLUMNS)
STEERING_COLUMNS = list_session_names(lambda column: column.merge == "newer" and column.steers)
SET_STEERING = make_completion("sessions", STEERING_COLUMNS)

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
COSTS = ("estimated_cost_usd", "actual_cost_usd")
NOT_OF_A_BRANCH = {
    column.name: 0 if column.kind == "counter" else None for column in SESSIONS if not column.in_branch
}
"""Columns that a branch does not take from the incoming session, with the values that the branch gets
instead."""

BASE_KEY = "merged:"
"""The prefix of a key in `state_meta`, followed by the session id. Its value is the state of the labels at
the last merge."""


class Retitled(NamedTuple):
    """A session that did not get its merged title, because another session has that title."""

    chosen: Labels
    """The merged labels, with the title that was not available."""
    incoming: Labels


class Applied(NamedTuple):
    """What `apply_merge` has done."""

    ids: list[int]
    """The stored ids of all incoming messages."""
    is_changed: bool
    """Whether anything except messages changed."""
    retitled: Retitled | None


def apply_merge(
    writer: Writer, merge: Merge, incoming: IncomingSession, *, trusted: bool, added: set[str]
) -> Applied:
    """Apply a merge in the caller's transaction.

    `added` lists the sessions of this import. In an untrusted import, a title never joins the title lineage
    of a session that is not in `added`.
    """
    ids, retitled = list(merge.ids), None
    is_rewound = bool(merge.plan.to_rewind or merge.plan.to_restore)
    is_changed = is_rewound
    is_unused = not merge.plan.newer_here  # no message was added to the stored copy
    is_from_file = merge.session.is_untrusted and is_unused and not merge.is_branched
    # The labels are merged before the branch is created. The session then gets the title, and the branch gets
    # another one.
    if not merge.is_alias and (trusted or is_from_file):
        is_relabelled, retitled = _take_labels(writer, merge, incoming, trusted=trusted, added=added)
        is_changed |= is_relabelled
    if merge.branch is not None:
        ids = _make_branch(writer, merge, merge.branch, incoming, trusted=trusted, added=added)
    elif merge.missing:
        ids = _insert_messages(writer, merge.target.id, incoming, merge.missing, ids)
    if merge.branch is None and (merge.missing or is_rewound):
        _apply_rewinds(writer, merge, incoming)
        carried_context.recount_messages(writer, merge.target.id)
    if merge.branch is None and (trusted or (merge.target.is_untrusted and is_unused)):
        is_changed |= _take_usage(writer, merge, incoming, trusted=trusted)
    if merge.missing or is_changed:
        for session_id in merge.visited:
            writer.run(derived.NOTE, session_id)
        derived.refresh(writer)
    return Applied(ids, is_changed, retitled)


def note_labels(writer: Writer, session_id: str, here: Labels, incoming: Labels) -> None:
    """Record the labels of the stored and of the incoming copy of a session, as digests. The next merge of the
    session compares its labels with them."""
    marks = [mark_labels(here), mark_labels(incoming)]
    text = to_json(marks[:1] if marks[0] == marks[1] else marks)
    if writer.value(meta.GET, BASE_KEY + session_id) != text:
        writer.run(meta.SET, BASE_KEY + session_id, text)


def read_labels(reader: Reader, copy: Copy) -> Labels:
    row = copy.row
    return Labels(
        row["title"],
        row["title_by"],
        (row["ended_at"], row["end_reason"]),
        bool(row["archived"]),
        row["pinned_at"],
        frozenset(tag for (tag,) in reader.rows(TAGS_OF, copy.id)),
    )


def _insert_messages(
    writer: Writer, session_id: str, incoming: IncomingSession, places: Sequence[int], ids: Sequence[int]
) -> list[int]:
    """Append the incoming messages at the positions `places` to the session `session_id`. `ids` contains the id
    in this store of each incoming message that was stored before. Return `ids` with the ids of the appended
    messages filled in."""
    found = list(ids)
    for place in places:
        found[place] = writer.insert(INSERT_MESSAGE, session_id, *incoming.messages[place])
        blobs.attach_blobs(writer, found[place], incoming.attachments[place])
    return found


def _make_branch(
    writer: Writer, merge: Merge, branch: str, incoming: IncomingSession, *, trusted: bool, added: set[str]
) -> list[int]:
    source = merge.target.row
    title = incoming.title or writer.value(GET_TITLE, merge.session.id)
    if title is not None and not trusted:
        title = import_policy.clear_title(writer, title, added)
    if title is not None:
        title = find_free_title(writer, title, source["owner"], branch)
    calls = _find_missing_calls(writer, merge, incoming, trusted=trusted)
    columns: dict[str, Any] = dict(zip(REST, incoming.rest, strict=True))
    columns |= NOT_OF_A_BRANCH | _sum_calls(calls)
    columns["title_by"] = None if title is None else BY_STORE
    started_at = min(incoming.messages[place][TIMESTAMP] for place in merge.missing)
    writer.run(
        *(
            INSERT_SESSION,
            branch,
            incoming.source,
            started_at,
            title,
            source["owner"],
            merge.target.id,
            "branch",
        ),
        *(0, 0, *(columns[name] for name in REST)),
    )
    ids = _insert_messages(writer, branch, incoming, merge.missing, merge.ids)
    carried_context.carry_messages(writer, branch, _find_carried(writer, merge, incoming, ids))
    carried_context.recount_messages(writer, branch)
    for call in calls:
        writer.insert(RECORD_CALL, branch, *call)
    writer.run(derived.NOTE, branch)
    return ids


def _find_carried(reader: Reader, merge: Merge, incoming: IncomingSession, ids: Sequence[int]) -> list[int]:
    """Return the ids of the stored messages that a new branch must carry, so that its context is that of the
    incoming copy. `ids` are the ids in this store of all incoming messages."""
    target, known = merge.target, set(merge.ids)
    matched = [match for match in merge.plan.matches if match is not None]
    before = target.ids[: min(matched, default=0)]
    own, live = set(target.ids), {row[0] for row in reader.rows(carried_context.OWN, target.id)}
    carried = [
        row[0] for row in reader.rows(carried_context.LIVE, target.id) if row[0] not in own or row[0] in known
    ]
    carried += [message_id for message_id in before if message_id in live]
    carried += [ids[place] for place, row in enumerate(incoming.messages) if row[ACTIVE]]
    carried = list(dict.fromkeys(carried))
    new = {ids[place] for place in merge.missing}
    while carried and carried[-1] in new:  # the branch's own messages follow the carried ones anyway
        carried.pop()
    return carried


def _apply_rewinds(writer: Writer, merge: Merge, incoming: IncomingSession) -> None:
    at = {match: place for place, match in zip(merge.places, merge.plan.matches, strict=True)}
    for match in merge.plan.to_rewind:
        message_id = merge.target.ids[match]
        writer.run(REWIND, incoming.messages[at[match]][REWOUND_AT], message_id)
        writer.run(NOTE_TAKEN, message_id)
    for match in merge.plan.to_restore:
        writer.run(RESTORE, merge.target.ids[match])
        writer.run(NOTE_TAKEN, merge.target.ids[match])


def _find_missing_calls(
    reader: Reader, merge: Merge, incoming: IncomingSession, *, trusted: bool
) -> list[tuple[Any, ...]]:
    """Return the model calls of the incoming session that are not recorded in its stored copies. An untrusted
    import ignores the times of the calls in this comparison."""
    # An untrusted import replaces a time in the future by the current time, so times are not compared.
    start = 0 if trusted else 1
    recorded = Counter(
        tuple(call[start:]) for session_id in merge.visited for call in reader.rows(MODEL_CALLS, session_id)
    )
    missing: list[tuple[Any, ...]] = []
    for call in incoming.model_calls:
        if recorded[call[start:]] > 0:
            recorded[call[start:]] -= 1
        else:
            missing.append(call)
    return missing


def _sum_calls(calls: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the sums of the token counts and costs of these model calls, and their number, by the name of the
    `sessions` column that contains the value."""
    first = 5
    sums: dict[str, Any] = {"api_call_count": len(calls)}
    for place, name in enumerate((*TOKENS, *COSTS), start=first):
        values = [call[place] for call in calls if call[place] is not None]
        sums[name] = sum(values) if values or name in TOKENS else None
    return sums


def _take_usage(writer: Writer, merge: Merge, incoming: IncomingSession, *, trusted: bool) -> bool:
    """Record the model calls of the incoming session that are missing in the store. Also set each token and
    cost column of the stored session to the higher value of both copies. If the messages go to a branch or to
    another session, its columns are increased by the missing calls instead. Return whether anything changed."""
    calls = _find_missing_calls(writer, merge, incoming, trusted=trusted)
    for call in calls:
        writer.insert(RECORD_CALL, merge.target.id, *call)
    if merge.is_branched or merge.is_alias:
        if calls:
            added = _sum_calls(calls)
            row = merge.target.row
            sums = [_add_numbers(row[name], added.get(name)) for name in COUNTER_COLUMNS]
            writer.run(SET_COUNTERS, *sums, merge.target.id)
        return bool(calls)
    row = merge.session.row
    before = [row[name] for name in COUNTER_COLUMNS]
    # Rewinds of the incoming copy count only if that copy is newer.
    stays = () if merge.newer_side == "incoming" else ("rewind_count",)
    counters = [
        row[name] if name in stays else _choose_higher(row[name], incoming.get_column(name))
        for name in COUNTER_COLUMNS
    ]
    if counters != before:
        writer.run(SET_COUNTERS, *counters, merge.session.id)
    return bool(calls) or counters != before


def _add_numbers(here: float | None, more: float | None) -> float | None:
    return here if more is None else (here or 0) + more


def _choose_higher(here: float | None, incoming: float | None) -> float | None:
    return max((value for value in (here, incoming) if value is not None), default=None)


def _take_labels(
    writer: Writer, merge: Merge, incoming: IncomingSession, *, trusted: bool, added: set[str]
) -> tuple[bool, Retitled | None]:
    """Apply newer titles, ends, tags, archive flags, pins and model settings to the session.

    Return (whether any label changed, `Retitled` value). The second value is None if the merged title was
    available.
    """
    session, here, labels = merge.session, read_labels(writer, merge.session), incoming.make_labels()
    if not trusted:  # an untrusted file neither adds nor removes a pin
        labels = labels._replace(pinned_at=here.pinned_at)
    is_former = is_former_title(writer, session.id, labels.title)
    base = _read_base(writer, session.id)
    merged = merge_labels(here, labels, base, merge.newer_side, is_former_title=is_former)
    if session.transcript.is_continued:
        merged = merged._replace(end=here.end)
    chosen = merged
    if merged.title != here.title:
        title = merged.title
        if title is not None and not trusted:
            title = import_policy.clear_title(writer, title, added | {session.id})
        if title is not None:
            _rename_branch(writer, session, title)
            title = find_free_title(writer, title, session.row["owner"], session.id)
        merged = merged._replace(title=title, title_by=merged.title_by if title == chosen.title else BY_STORE)
        writer.run(SET_TITLE, title, merged.title_by, session.id)
    if merged.end != here.end and merged.end[1] in ("compression", "branched"):
        writer.run(SETTLE_CHILDREN, session.id)
    if merged[2:5] != here[2:5]:
        writer.run(SET_LABELS, *merged.end, int(merged.is_archived), merged.pinned_at, session.id)
    for tag in merged.tags - here.tags:
        writer.run(ADD_TAG, session.id, tag)
    for tag in here.tags - merged.tags:
        writer.run(REMOVE_TAG, session.id, tag)
    if merge.newer_side == "incoming":
        writer.run(SET_DATA, *(incoming.get_column(name) for name in DATA_COLUMNS), session.id)
        if trusted and not session.is_untrusted:
            writer.run(SET_STEERING, *(incoming.get_column(name) for name in STEERING_COLUMNS), session.id)
    note_labels(writer, session.id, merged, labels)
    return merged != here, None if merged.title == chosen.title else Retitled(chosen, labels)


def _rename_branch(writer: Writer, session: Copy, title: str) -> None:
    """If `title` is used by a branch that an earlier merge created from `session`, give that branch another
    title, so that `session` can get this one. A title that a person gave to the branch is kept."""
    holder = writer.value(HELD_BY, title, session.row["owner"], session.id)
    if holder is None or find_branch_origin(holder) != session.id:
        return
    row = writer.dict(SELECT_ROW, holder)
    if row is not None and row["title_by"] == BY_STORE:
        writer.run(SET_TITLE, find_free_title(writer, title, row["owner"], ""), BY_STORE, holder)
        writer.run(derived.NOTE, holder)


def _read_base(reader: Reader, session_id: str) -> Base | None:
    marks = from_json(reader.value(meta.GET, BASE_KEY + session_id) or "null", None)
    return Base(marks[0], marks[-1]) if isinstance(marks, list) and marks else None
