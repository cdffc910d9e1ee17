"""What commands return. Surfaces render it; nothing in it is escaped for one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hermes.agent.subagents import AgentsReply

if TYPE_CHECKING:
    from hermes.agent.events import Event
    from hermes.conversation.commands.command_types import ModelDescription
    from hermes.recall.interactive_search import FoundConversations
    from hermes.store.chats.leases import Lease
    from hermes.store.reports.usage import UsageTotals

Row = dict[str, Any]


class Refused(NamedTuple):
    """Nothing was done. The text is ours; what is to be typed stands in backticks."""

    text: str


class NothingSaid(NamedTuple):
    """Nothing was done because the conversation is empty. The text says what there is nothing of."""

    text: str


class Cancelled(NamedTuple):
    """The person did not confirm."""


class TookBack(NamedTuple):
    messages: int
    content: Any
    """What the person had said there."""
    exchanges: int


class BroughtBack(NamedTuple):
    messages: int
    """0 if there was nothing to bring back."""


class StartUndone(NamedTuple):
    """The conversation that a new start had left is back."""

    row: Row | None
    messages: int
    notes: Sequence[str]


class Prompts(NamedTuple):
    """What the person said last, newest first, to go back to. A surface that could ask has asked already."""

    rows: Sequence[Row]
    """`id`, `timestamp`, `preview`."""


class AskAgain(NamedTuple):
    """The last question is to be asked again now."""

    content: Any
    is_stored: bool
    """Whether it is the last message of the context: then the turn is run without storing it again."""


class Resent(NamedTuple):
    content: Any
    """The last answer."""


class Compressing(NamedTuple):
    events: AsyncIterator[Event]
    """Nothing is compressed before they are read."""


class History(NamedTuple):
    rows: Sequence[Row]


class Stopped(NamedTuple):
    turn: bool
    """Whether an answer was being made."""
    waiting: int
    processes: int
    """How many background processes were ended."""


class Started(NamedTuple):
    """A new conversation."""

    row: Row | None
    """None as long as it is not stored."""
    title: str | None
    left: Row | None
    title_problem: str | None


class AlreadyNew(NamedTuple):
    title_problem: str | None


class Titled(NamedTuple):
    title: str | None
    """None: it was removed."""
    is_queued: bool = False
    """It is stored with the first message."""


class TitleShown(NamedTuple):
    session_id: str | None
    title: str | None
    is_queued: bool


class Switched(NamedTuple):
    row: Row
    session_id: str
    messages: int
    notes: Sequence[str]


class AlreadyHere(NamedTuple):
    row: Row


class Busy(NamedTuple):
    """Somebody else works in the conversation."""

    session_id: str
    lease: Lease


class Ambiguous(NamedTuple):
    """Several conversations may be meant. A surface that could ask has asked already."""

    rows: Sequence[Row]


class NotFound(NamedTuple):
    words: str


class Branched(NamedTuple):
    row: Row | None
    session_id: str
    left_id: str


class ConversationList(NamedTuple):
    rows: Sequence[Row]
    """The newest; a number means one of these."""
    more: bool
    """Whether there are others."""
    private: int
    """How many there are that cannot be shown here."""
    here: str | None = None
    """The session of the conversation that the command was typed in."""
    words: str = ""
    """What was looked for in titles and beginnings."""
    is_resume: bool = False
    """Whether the person wants to go on in one of them."""


class SearchHits(NamedTuple):
    rows: Sequence[Row]
    """As `search_conversations` gives them, with `id` (the live end) and `preview`."""
    private: int
    found: FoundConversations


class Status(NamedTuple):
    session_id: str | None
    row: Row | None
    title: str | None
    messages: int
    used: UsageTotals | None


class Usage(NamedTuple):
    used: UsageTotals | None
    """None if nothing is stored."""


class Insights(NamedTuple):
    report: dict[str, Any]


class Memory(NamedTuple):
    text: str


class Skills(NamedTuple):
    entries: Sequence[tuple[str, str]]


class ModelShown(NamedTuple):
    model: ModelDescription | None


class ModelChosen(NamedTuple):
    name: str


class Help(NamedTuple):
    name: str
    """The command that is asked about; empty for all."""


Reply: TypeAlias = (
    Refused
    | NothingSaid
    | Cancelled
    | TookBack
    | BroughtBack
    | StartUndone
    | Prompts
    | AskAgain
    | Resent
    | Compressing
    | History
    | Stopped
    | Started
    | AlreadyNew
    | Titled
    | TitleShown
    | Switched
    | AlreadyHere
    | Busy
    | Ambiguous
    | NotFound
    | Branched
    | ConversationList
    | SearchHits
    | Status
    | Usage
    | Insights
    | Memory
    | Skills
    | ModelShown
    | ModelChosen
    | Help
    | AgentsReply
)
