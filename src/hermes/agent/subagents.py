"""The subagents of each conversation: those that this process runs, and those found in the store.

A conversation can access only its own subagents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.agent.events import SubagentProgress
from hermes.clock import RecentEvents
from hermes.insights.number_format import format_dollars, format_duration, format_plural, shorten_number

if TYPE_CHECKING:
    from hermes.agent.turn import Turn
    from hermes.db.session_db import AnyStore
    from hermes.store.sessions.lineage import Relative

END_REASONS = {"done": "subagent_done", "failed": "subagent_failed", "stopped": "subagent_stopped"}
"""The `end_reason` of a subagent's session for each final state."""
STATES = {reason: state for state, reason in END_REASONS.items()} | {"orphaned": "interrupted"}
STOPPED_BY_PERSON = "the person stopped it"
MOST_REMEMBERED = 20
"""The number of ended subagents per conversation that this process remembers."""
MOST_CONVERSATIONS = 200
"""The number of conversations whose ended subagents this process remembers."""
MOST_LISTED = 20
HOUR_S = 3600.0


class Task(NamedTuple):
    goal: str
    context: str = ""
    tools: Sequence[str] | None = None
    """Tool names; None means all tools that a subagent can have."""
    max_steps: int | None = None

    @property
    def prompt(self) -> str:
        """The text of the first message that the subagent receives."""
        return f"{self.goal}\n\nWhat you should know:\n{self.context}" if self.context else self.goal


class SubagentResult(NamedTuple):
    progress: SubagentProgress
    answer: str
    """The last text of the subagent. If the subagent was stopped, the text that it had written so far."""
    problem: str = ""
    """Why the answer is missing or incomplete; empty if there is a complete answer."""
    notes: tuple[str, ...] = ()


class Subagent:
    """A subagent of this process. `progress` describes its current state."""

    def __init__(self, conversation: str, number: int, goal: str) -> None:
        self.conversation, self.number = conversation, number
        self.may_start = asyncio.Event()
        """Set when the concurrency limit allows the subagent to start, or when the subagent was stopped
        before that."""
        self.stop_reason: str | None = None
        self.approvals_waiting = 0
        self.turn: Turn | None = None
        self._progress = SubagentProgress(number, goal, "queued")
        self._began_at: float | None = None

    @property
    def progress(self) -> SubagentProgress:
        if self._began_at is None or self._progress.is_over:
            return self._progress
        return self._progress._replace(seconds=monotonic() - self._began_at)

    @property
    def name(self) -> str:
        """The name of the subagent for display, such as `subagent 2`."""
        return f"subagent {self.number}"

    def update(self, **changes: Any) -> SubagentProgress:
        """Set the fields in `changes` in the progress of the subagent, and return the new progress. The running time
        is no longer increased when the state is final."""
        if changes.get("state") == "running":
            self._began_at = monotonic()
        self._progress = self.progress._replace(**changes)
        return self._progress

    def stop(self, why: str) -> None:
        """Stop the turn of the subagent as soon as possible. The messages so far remain stored."""
        if self.stop_reason is None and not self._progress.is_over:
            self.stop_reason = why
        if self.turn is not None:
            self.turn.stop()
        self.may_start.set()


class TaskQuota:
    """The number of tasks that each person may give to subagents within an hour."""

    def __init__(self, per_hour: int, read_clock: Callable[[], float] = monotonic) -> None:
        self.per_hour = per_hour
        self._read_clock = read_clock
        self._tasks = RecentEvents(HOUR_S)

    def count_left(self, person: str) -> int:
        return self.per_hour - self._tasks.count(person, self._read_clock())

    def take(self, people: Sequence[str], tasks: int) -> bool:
        """Charge `tasks` tasks to the quota of each of these people and return True. If this would exceed the quota
        of one of them, charge nothing and return False."""
        if any(self.count_left(person) < tasks for person in people):
            return False
        now = self._read_clock()
        for person in people:
            for _ in range(tasks):
                self._tasks.add(person, now)
        return True


class Subagents:
    """The subagents of this process, by conversation. Use it only in the event loop that runs them."""

    def __init__(self, most_at_once: int) -> None:
        """`most_at_once`: how many subagents of one conversation may run at the same time. Further subagents
        are queued."""
        self._most_at_once = most_at_once
        self._known: dict[str, list[Subagent]] = {}
        """The subagents of each conversation in order of creation. The most recently used conversation is
        last."""

    def add(self, conversation: str, goal: str) -> Subagent:
        """Add a subagent at the end of the queue."""
        mine = self._known[conversation] = self._known.pop(conversation, [])
        subagent = Subagent(conversation, 1 + max((known.number for known in mine), default=0), goal)
        mine.append(subagent)
        self._forget_conversations()
        self._start_next(conversation)
        return subagent

    def end(self, subagent: Subagent, **changes: Any) -> SubagentProgress:
        """Mark a subagent as ended and start the next queued subagent. Drop the oldest ended subagents beyond
        `MOST_REMEMBERED`."""
        progress = subagent.update(activity="", **changes)
        mine = self._known[subagent.conversation]
        over = [known for known in mine if known.progress.is_over]
        for forgotten in over[: max(0, len(over) - MOST_REMEMBERED)]:
            mine.remove(forgotten)
        self._start_next(subagent.conversation)
        return progress

    def list_known(self, conversation: str) -> list[SubagentProgress]:
        """Return the subagents of a conversation in order of creation."""
        return [subagent.progress for subagent in self._known.get(conversation, ())]

    def stop(self, conversation: str, number: int | None = None) -> list[SubagentProgress]:
        """Stop the subagent with this number, or all subagents of the conversation if `number` is None.
        Return those that were stopped."""
        mine = [
            subagent
            for subagent in self._known.get(conversation, ())
            if not subagent.progress.is_over and number in (None, subagent.number)
        ]
        for subagent in mine:
            subagent.stop(STOPPED_BY_PERSON)
        return [subagent.progress for subagent in mine]

    def _forget_conversations(self) -> None:
        idle = [
            conversation
            for conversation, mine in self._known.items()
            if all(subagent.progress.is_over for subagent in mine)
        ]
        for conversation in idle[: max(0, len(self._known) - MOST_CONVERSATIONS)]:
            del self._known[conversation]

    def _start_next(self, conversation: str) -> None:
        mine = self._known[conversation]
        free = self._most_at_once - sum(subagent.progress.state == "running" for subagent in mine)
        queued = [
            subagent
            for subagent in mine
            if subagent.progress.state == "queued" and subagent.stop_reason is None
        ]
        for subagent in queued[: max(0, free)]:
            subagent.update(state="running")
            subagent.may_start.set()


def list_subagents(
    store: AnyStore, known: Sequence[SubagentProgress], conversation: str
) -> list[SubagentProgress]:
    """Return the progress of each subagent of a conversation: the active subagents first, then the ended ones,
    newest first.

    `known` is the progress of the subagents that this process runs or ran. Other subagents are read from the
    store.
    """
    active = [progress for progress in known if not progress.is_over]
    ended = [progress for progress in reversed(known) if progress.is_over]
    ids = {progress.session_id for progress in known}
    room = max(0, MOST_LISTED - len(ended))
    stored = [child for child in list_child_sessions(store, conversation) if child.id not in ids]
    return [*active, *ended, *(_read_progress(store, child) for child in stored[:room])]


def list_child_sessions(store: AnyStore, conversation: str) -> list[Relative]:
    """Return the first session of each subagent of the conversation, newest first."""
    family = store.family(conversation)
    members = [] if family is None else [relative for _, relative in family.walk()]
    children = [
        child
        for member in members
        if member.root_id == conversation
        for child in member.children
        if child.kind == "child" and child.root_id != conversation
    ]
    return sorted(children, key=lambda child: (child.started_at, child.id), reverse=True)


def _read_progress(store: AnyStore, child: Relative) -> SubagentProgress:
    tip = store.get_compression_tip(child.id)
    row = store.get_session(tip) or {}
    used = store.usage_of(child.id, True).total
    ended_at, cost = row.get("ended_at"), used.actual_cost_usd
    if ended_at is None:
        state = "interrupted" if store.leases.find_holder(child.id) is None else "running"
    else:
        state = STATES.get(str(row.get("end_reason")), "done")
    until = ended_at or row.get("last_active") or child.started_at
    return SubagentProgress(
        None,
        child.preview or "",
        state,
        child.id,
        steps=used.calls,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cost_usd=(used.estimated_cost_usd or None) if cost is None else cost,
        seconds=max(0.0, until - child.started_at),
    )


# ---------------------------------------------------------------- one-line descriptions


def describe_work(progress: SubagentProgress) -> str:
    """Return the work and the usage of a subagent so far as a text, for example `4 steps, 3.2K tokens, $0.02,
    12s`."""
    tokens = progress.input_tokens + progress.output_tokens
    parts = [
        format_plural(progress.steps, "step"),
        *([f"{shorten_number(tokens)} tokens"] if tokens else []),
        *([format_dollars(progress.cost_usd)] if progress.cost_usd else []),
        format_duration(progress.seconds),
    ]
    return ", ".join(parts)


def summarize_states(subagents: Iterable[SubagentProgress]) -> str:
    """Return one line about several subagents: how many there are, how many of them have ended, and what the others
    do. An example is `3 subagents, 1 over: terminal, read_file`."""
    listed = list(subagents)
    over = [progress for progress in listed if progress.is_over]
    activities = dict.fromkeys(progress.activity for progress in listed if progress.activity)
    ended = f", {len(over)} over" if over else ""
    doing = f": {', '.join(activities)}" if activities else ""
    return f"{format_plural(len(listed), 'subagent')}{ended}{doing}"
