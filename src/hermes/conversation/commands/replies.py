"""The replies of commands, as plain data. `wording` turns most replies into text; surfaces add their
markup."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from hermes.agent.events import Event, SubagentProgress
    from hermes.conversation.commands.command_types import ModelDescription
    from hermes.conversation.file_restore import RestoredFiles
    from hermes.store.chats.leases import Lease
    from hermes.store.reports.usage import UsageTotals

Row = dict[str, Any]


class Reason(StrEnum):
    """The reason why a command changed nothing."""

    NOTHING_TO_TAKE_BACK = "nothing to take back"
    NOTHING_TO_GO_BACK_TO = "nothing to go back to"
    NOTHING_TO_ASK_AGAIN = "nothing to ask again"
    NOTHING_TO_COMPRESS = "nothing to compress"
    NOTHING_TO_BRANCH_FROM = "nothing to branch from"
    NO_ANSWER = "no answer yet"
    NO_SUBAGENTS = "no subagents yet"
    INCOGNITO = "incognito"
    TITLE_TAKEN = "title taken"
    """Another conversation has the title, and its id must not be shown to the other readers of the chat."""
    MODEL_IS_FIXED = "model is fixed"
    """A person cannot choose the model on this surface."""
    ABOUT_ONE_PERSON = "about one person"
    """The command would show data about one person, and other people can read the chat."""
    NUMBERS_OF_ONE_PERSON = "numbers of one person"
    """The usage report is about one person, and other people can read the chat."""
    PRIVATE_CONVERSATION = "private conversation"
    """The conversation is private, and other people can read this chat."""
    SHARED_CONVERSATION = "shared conversation"
    """The conversation is shared, and this chat is private."""


class Refused(NamedTuple):
    """The command changed nothing."""

    reason: Reason


class NothingSaid(NamedTuple):
    """The command changed nothing because the conversation has no messages."""

    reason: Reason


class WrongUsage(NamedTuple):
    """The text that the person typed after the command's name is invalid."""

    usage: str
    summary: str


class Cancelled(NamedTuple):
    """The command changed nothing because the person did not confirm it."""


class TookBack(NamedTuple):
    messages: int
    content: Any
    """The content of the first message that was taken back."""
    exchanges: int


class BroughtBack(NamedTuple):
    messages: int
    """The number of restored messages; 0 if there was nothing to restore."""


class WithFiles(NamedTuple):
    """Messages were taken back or brought back, and the file edits of these messages were reverted or repeated. Only
    the terminal has this reply."""

    reply: TookBack | BroughtBack
    files: RestoredFiles


class StartUndone(NamedTuple):
    """The start of a new conversation was undone. The conversation before it is current again."""

    row: Row | None
    messages: int
    notes: Sequence[str]


class Prompts(NamedTuple):
    """The last messages of the person, newest first. This is the reply to `/rewind` without a number, if the surface
    cannot ask for a choice or if the person chose no message."""

    rows: Sequence[Row]
    """Columns: `id`, `timestamp`, `preview`."""


class AskAgain(NamedTuple):
    """Tells the surface to run a turn now, which answers the person's last message again."""

    content: Any
    is_stored: bool
    """Whether the question is the last message of the context. If so, the turn must not store it again."""


class Resent(NamedTuple):
    content: Any
    """The content of the last answer, to be shown again."""


class Compressing(NamedTuple):
    events: AsyncIterator[Event]
    """The compression runs while these events are read."""


class History(NamedTuple):
    rows: Sequence[Row]


class Stopped(NamedTuple):
    turn: bool
    """Whether a turn was stopped."""
    waiting: int
    processes: int
    """The number of background processes that were ended."""


class Started(NamedTuple):
    """A new conversation was started."""

    row: Row | None
    """The new session; None until it is stored."""
    title: str | None
    left: Row | None
    title_problem: str | None


class AlreadyNew(NamedTuple):
    title_problem: str | None


class Titled(NamedTuple):
    title: str | None
    """The new title; None if the title was removed."""
    is_queued: bool = False
    """Whether the title will be stored with the first message."""


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
    """The command changed nothing because another process works in the conversation."""

    session_id: str
    lease: Lease


class Ambiguous(NamedTuple):
    """Several conversations match the name that the person typed. This is the reply if the surface cannot ask which one
    is meant, or if the person chose none."""

    rows: Sequence[Row]


class NotFound(NamedTuple):
    words: str


class Branched(NamedTuple):
    row: Row | None
    session_id: str
    left_id: str


class ConversationList(NamedTuple):
    rows: Sequence[Row]
    """The newest conversations. `/resume 3` refers to the third row of this list."""
    more: bool
    """Whether there are more conversations after these rows."""
    private: int
    """The number of the person's own conversations that may not be opened here."""
    here: str | None = None
    """The session in which the command was typed."""
    words: str = ""
    """The words that the listed conversations had to contain."""
    is_resume: bool = False
    """Whether the list is shown so that the person can resume a conversation."""


class SearchHits(NamedTuple):
    rows: Sequence[Row]
    """The rows of `search_conversations`, with `id` (the current session) and `preview`."""
    private: int
    """The number of hits that may not be shown here."""
    parts: Sequence[str] = ()
    """The parts of words that match, if no whole word matches. Otherwise empty."""
    are_nearest: bool = False
    """Whether the rows match the query only approximately. Always False for questions in plain words."""


class Status(NamedTuple):
    session_id: str | None
    row: Row | None
    title: str | None
    messages: int
    used: UsageTotals | None


class Usage(NamedTuple):
    used: UsageTotals | None
    """The usage of the conversation; None if the conversation is not stored."""


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
    unchecked: str | None = None
    """Why the name of the model could not be checked with the endpoint. None if it was checked."""


class UnknownModel(NamedTuple):
    """The endpoint does not have the model. Nothing was changed."""

    name: str
    address: str
    similar: Sequence[str]


class SubagentList(NamedTuple):
    """The subagents of the conversation, running ones first."""

    subagents: Sequence[SubagentProgress]


class SubagentsStopped(NamedTuple):
    stopped: Sequence[SubagentProgress]
    """The subagents that were stopped; empty if no matching subagent was running."""
    number: int | None
    """The number of the subagent that the person wanted to stop; None for all."""


class Help(NamedTuple):
    name: str
    """The name of the command to explain; empty to list all commands."""


Reply: TypeAlias = (
    Refused
    | NothingSaid
    | WrongUsage
    | Cancelled
    | TookBack
    | BroughtBack
    | WithFiles
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
    | UnknownModel
    | Help
    | SubagentList
    | SubagentsStopped
)
