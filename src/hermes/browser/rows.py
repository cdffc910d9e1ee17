"""The loaded rows of the conversation list.

Invariant: however long a list is, at most `KEPT` of its rows are in memory. Dropped rows are requested again
when they become visible. There are two exceptions: the rows of a search all stay in memory, because the store
cannot return search results page by page, and so do the conversations of scheduled jobs, because they are
counted by job. `hermes cron` keeps a limited number of them.

The conversations of jobs come after all others. Each job has a row of its own, which can be opened.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from hermes.browser.glyphs import drop_lone_joiners
from hermes.store.sessions.listing import describe_job
from hermes.text import make_printable

PAGE = 50
KEPT = 400

UNTITLED = "(no title, no messages yet)"


class Conversation(NamedTuple):
    id: str
    """The last session of the conversation, which is the session to resume."""
    root_id: str
    title: str | None
    preview: str
    source: str
    kind: str
    started_at: object
    last_active: object
    messages: int
    pinned: bool
    archived: bool
    snippet: str = ""
    """The matched text of a search, with `>>>` and `<<<` around matches."""
    session_id: str | None = None
    message_id: int | None = None
    """The message that was found, and its session."""
    person: str | None = None
    """The platform's id of the person. It distinguishes conversations of two people with the same title."""
    workspace: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Conversation:
        """Make a conversation from a row of `list_conversations`."""
        return cls(
            id=row["id"],
            root_id=row["root_id"] or row["id"],
            title=row["title"],
            preview=row["preview"] or "",
            source=str(row["source"]),
            kind=str(row["kind"]),
            started_at=row["started_at"],
            last_active=row["last_active"],
            messages=row["message_count"] or 0,
            pinned=row["pinned_at"] is not None,
            archived=bool(row["archived"]),
            person=row.get("user_id"),
            workspace=row.get("workspace"),
            tags=tuple(row.get("tags") or ()),
        )

    @property
    def name(self) -> str:
        return drop_lone_joiners(make_printable(self.title or self.preview or UNTITLED, width_limit=200))

    @property
    def short_name(self) -> str:
        """The name of this conversation in quotation marks, cut for use in a sentence."""
        return f"“{make_printable(self.title or self.preview or self.id, width_limit=22)}”"


def name_several(conversations: Sequence[Conversation]) -> str:
    """Name one or several conversations for use in a sentence: `“x”` or `3 conversations`."""
    if len(conversations) == 1:
        return conversations[0].short_name
    return f"{len(conversations):,} conversations"


class JobRow(NamedTuple):
    """The row of a scheduled job. It is not a conversation: no action changes it."""

    job_id: str
    runs: tuple[Conversation, ...]
    """The conversations that the job began, in the order of the list."""

    @property
    def newest(self) -> Conversation:
        return max(self.runs, key=lambda run: to_timestamp(run.last_active))

    @property
    def name(self) -> str:
        return describe_job(self.job_id, len(self.runs))


AnyRow = Conversation | JobRow


def to_timestamp(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


class Rows:
    def __init__(
        self,
        total: int = 0,
        hidden: Mapping[str, int] | None = None,
        *,
        are_more: bool = False,
        of_search: bool = False,
        parts: tuple[str, ...] = (),
        jobs: Iterable[JobRow] = (),
    ) -> None:
        """`total` is the number of rows in the store, without the conversations of `jobs`."""
        self._paged = total
        """The number of rows that are loaded page by page. The rows of jobs follow them."""
        self._jobs, self._open = list(jobs), frozenset[str]()
        self._tail = self._list_tail()
        """The rows of jobs, and of the conversations of open jobs."""
        self.hidden = dict(hidden or {})
        self.are_more = are_more
        """Whether the search found more conversations than these rows, which are the best ones."""
        self.of_search = of_search
        self.parts = parts
        """Words of the query that were found only as parts of longer words."""
        self._at: dict[int, Conversation] = {}
        self._before = 0
        """The number of rows inserted before the rows of the store: 1 after `put_first`, otherwise 0."""

    @property
    def total(self) -> int:
        return self._paged + len(self._tail)

    @property
    def paged(self) -> int:
        """The number of rows before the first job."""
        return self._paged

    def __len__(self) -> int:
        """Return the number of loaded rows."""
        return len(self._at) + len(self._tail)

    def get(self, index: int) -> Conversation | None:
        """Return the conversation at an index; None if it is not loaded, or if the row is that of a job."""
        row = self._get_tail(index)
        return row if isinstance(row, Conversation) else self._at.get(index)

    def get_job(self, index: int) -> JobRow | None:
        row = self._get_tail(index)
        return row if isinstance(row, JobRow) else None

    def find_job_index(self, index: int) -> int | None:
        """Return the index of the job whose row, or whose conversation, is at `index`."""
        while index >= self._paged and self.get_job(index) is None:
            index -= 1
        return None if index < self._paged else index

    def is_run(self, index: int) -> bool:
        """Return whether the row is a conversation below its job."""
        return isinstance(self._get_tail(index), Conversation)

    def is_open(self, job_id: str) -> bool:
        return job_id in self._open

    def open_jobs(self, job_ids: Collection[str]) -> None:
        """Show the conversations of these jobs, and only of these."""
        self._open = frozenset(job_ids)
        self._tail = self._list_tail()

    def _get_tail(self, index: int) -> AnyRow | None:
        return self._tail[index - self._paged] if self._paged <= index < self.total else None

    def _list_tail(self) -> list[AnyRow]:
        tail: list[AnyRow] = []
        for job in self._jobs:
            tail += (job, *job.runs) if job.job_id in self._open else (job,)
        return tail

    def __iter__(self) -> Iterator[Conversation]:
        """Iterate over the loaded conversations in order, including those of closed jobs."""
        return iter(
            [
                *(self._at[index] for index in sorted(self._at)),
                *(run for job in self._jobs for run in job.runs),
            ]
        )

    def to_offset(self, index: int) -> int:
        """Return the position in the store's list of the row that has this `index` in the browser's list. The
        two differ if a row was inserted before all others."""
        return max(0, index - self._before)

    def count_rest(self, offset: int) -> int:
        """Return the expected number of rows in the store from `offset` to the end."""
        return self._paged - self._before - offset

    def put(self, offset: int, rows: Iterable[Conversation]) -> None:
        """Add a page of rows that was read from the store. `offset` is the position of its first row in the
        store's list. If too many rows are in memory, drop those that are farthest from this page."""
        for index, row in enumerate(rows, offset + self._before):
            if index < self._paged:
                self._at[index] = row
        if len(self._at) > KEPT and not self.of_search:
            middle = offset + self._before + PAGE // 2
            # Keep the inserted first row, because the store cannot return it again.
            nearest = sorted(self._at, key=lambda at: -1 if at < self._before else abs(at - middle))[:KEPT]
            self._at = {index: self._at[index] for index in nearest}

    def find_missing(self, first: int, last: int) -> list[int]:
        """Return the offsets of the pages that contain missing rows between the indexes `first` and `last`,
        both included."""
        indices = range(max(0, first), min(last, self._paged - 1) + 1)
        return sorted({(index - self._before) // PAGE * PAGE for index in indices if index not in self._at})

    def find_index(self, root_id: str) -> int | None:
        """Return the index of a visible conversation."""
        tail = enumerate(self._tail, self._paged)
        visible = chain(self._at.items(), tail)
        return next(
            (at for at, row in visible if isinstance(row, Conversation) and row.root_id == root_id), None
        )

    def find_row(self, row: AnyRow) -> int | None:
        """Return the index of the row of this conversation or this job."""
        if isinstance(row, Conversation):
            return self.find_index(row.root_id)
        jobs = enumerate(self._tail, self._paged)
        return next((at for at, job in jobs if isinstance(job, JobRow) and job.job_id == row.job_id), None)

    def change(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Change fields of some rows. `changes` maps the id of the first session of each conversation to the
        new values of its fields."""
        for index, row in self._at.items():
            if row.root_id in changes:
                self._at[index] = row._replace(**changes[row.root_id])
        self._change_runs(lambda run: run._replace(**changes.get(run.root_id, {})))

    def _change_runs(self, change: Callable[[Conversation], Conversation | None]) -> None:
        """Replace each conversation of a job by the result of `change`, or remove it if the result is None. A
        job without conversations has no row."""
        jobs = [job._replace(runs=tuple(filter(None, map(change, job.runs)))) for job in self._jobs]
        self._jobs = [job for job in jobs if job.runs]
        self._tail = self._list_tail()

    def remove(self, root_ids: Collection[str]) -> None:
        """Remove the rows of the conversations whose first sessions have the ids `root_ids`. The rows below
        them move up. For a row that is not loaded, only the total is reduced."""
        gone = sorted(index for index, row in self._at.items() if row.root_id in root_ids)
        of_jobs = sum(run.root_id in root_ids for job in self._jobs for run in job.runs)
        not_loaded = min(len(root_ids) - len(gone) - of_jobs, self._paged - len(self._at))
        kept = {index: row for index, row in self._at.items() if row.root_id not in root_ids}
        self._at = {index - bisect(gone, index): row for index, row in kept.items()}
        self._paged -= len(gone) + max(0, not_loaded)
        self._at = {index: row for index, row in self._at.items() if index < self._paged}
        self._change_runs(lambda run: None if run.root_id in root_ids else run)
        if gone and gone[0] < self._before:
            self._before = 0

    def put_first(self, row: Conversation) -> None:
        """Insert a row before all others. Call this at most once. The conversation of the row may occur again
        further down."""
        self._at = {0: row, **{at + 1: other for at, other in self._at.items()}}
        self._before = 1
        self._paged += 1
