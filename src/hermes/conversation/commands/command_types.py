"""The types of slash commands: the command, its context, and the surface it runs on."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from hermes.conversation.commands.replies import Reply, WrongUsage

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents
    from hermes.conversation.conversation import Conversation
    from hermes.conversation.file_restore import RestorePlan
    from hermes.db.session_db import AnyStore

Row = dict[str, Any]
ContextT = TypeVar("ContextT")
AnswerT = TypeVar("AnswerT")

LONGEST_NAME = 32
"""The maximum length of a command name, in characters."""
# A command name, optionally followed by the name of the bot, up to the next space. `/etc/hosts`, `/24` and
# `/a.b` are not commands.
_COMMAND = re.compile(
    rf"\s*/(?P<name>[^\W\d_][\w-]{{0,{LONGEST_NAME - 1}}})(?:@\w{{1,64}})?(?:\s+(?P<words>.*))?", re.DOTALL
)


class TypedCommand(NamedTuple):
    name: str
    """The name as typed. Command names are in lower case."""
    words: str


def split_command(text: str) -> TypedCommand | None:
    """Return the name of the slash command in a typed line, and the text after the name. Return None if the line is a
    message to the agent."""
    typed = _COMMAND.fullmatch(text)
    return None if typed is None else TypedCommand(typed["name"], (typed["words"] or "").strip())


def parse_number(text: str, most: int) -> int | None:
    """Return the number in the text if it is from 1 to `most`, otherwise None."""
    number = int(text) if text.isdecimal() and len(text) <= len(str(most)) else 0
    return number if 0 < number <= most else None


class Option(NamedTuple):
    id: str
    text: str
    row: Row | None = None
    """If the option is a conversation: its session row."""


class ModelDescription(NamedTuple):
    name: str
    address: str
    """The model's address; empty if the person may not see it."""


class CommandSurface(Protocol):
    """The functions that a command needs from its surface: ask the person a question, count the waiting messages, and
    list the running subagents."""

    @property
    def waiting(self) -> int:
        """The number of messages from the person that were received and are not answered yet."""

    async def confirm(self, question: str) -> bool:
        """Ask the person to confirm an action. A chat platform does not ask and returns True."""

    async def choose(self, question: str, options: Sequence[Option]) -> str | None:
        """Ask the person to choose one of several options. Return the id of the chosen option, or None if the person
        cancels. A chat platform cannot ask and returns None."""

    @property
    def edits_files(self) -> bool:
        """Whether this surface can change files of the person. If so, an undo of messages can also revert the file
        edits that were made in their turns."""

    async def confirm_restore(self, plan: RestorePlan, *, is_redo: bool) -> bool:
        """Show the person the files that a restore plan would change, and return whether the person agrees. Called only
        if `edits_files` is True."""

    @property
    def subagents(self) -> Subagents | None:
        """The registry of the running subagents of this program."""


class Visibility(Protocol):
    """Access rules: which conversations may be shown and opened in the place where a command was typed. Each `row` is a
    session row of the store."""

    @property
    def has_audience(self) -> bool:
        """Whether people other than the one who typed the command can read its reply."""

    @property
    def can_show_memory(self) -> bool:
        """Whether all readers of the chat may see the agent's memory."""

    def can_show(self, row: Row) -> bool: ...

    def can_open(self, row: Row) -> bool: ...

    def is_own(self, row: Row) -> bool:
        """Return whether the conversation belongs to the person who typed the command."""


class AllVisible:
    """Access rules of the terminal: the owner of the machine may see everything."""

    has_audience, can_show_memory = False, True

    def can_show(self, row: Row) -> bool:
        return True

    def can_open(self, row: Row) -> bool:
        return True

    def is_own(self, row: Row) -> bool:
        return True


class CommandContext(NamedTuple):
    """The values that a slash command receives besides the text after its name, such as the conversation, the surface
    and the access rules."""

    store: AnyStore
    """The store, restricted to the data that the person may see."""
    conversation: Conversation[Any]
    surface: CommandSurface
    visibility: Visibility = AllVisible()
    listed: Sequence[str] = ()
    """The ids of the conversations in the last list that was shown to the person, if the surface remembers it.
    `/resume 3` selects the third one."""
    find_latest: Callable[[], str | None] | None = None
    """Returns the id of the conversation that the word `latest` refers to. Without this function, `latest` refers to
    the newest conversation that can be opened here."""
    most_hits: int = 10
    """The maximum number of search hits in a reply."""


class Command(NamedTuple, Generic[ContextT, AnswerT]):
    """A slash command. A command that all surfaces share receives a `CommandContext` and returns a `Reply`.

    A command of a single surface receives the context of that surface.
    """

    name: str
    run: Callable[[ContextT, str], Awaitable[AnswerT]]
    """Called with the context and the text after the name."""
    takes: str
    """The arguments as shown in the usage line. `[name]` is optional, `<words>` is required."""
    summary: str
    at_once: bool = False
    """Whether the command runs immediately, even during a turn. Such a command does not change the
    conversation."""
    bare_at_once: bool = False
    """Whether the command runs immediately, even during a turn, if no words follow its name."""
    stops: bool = False
    """Whether the command stops the running turn."""
    aliases: tuple[str, ...] = ()
    takes_session: bool = False
    """Whether the words refer to a conversation. If so, surfaces complete the titles of conversations."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.takes}".rstrip()

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases

    def reject(self) -> WrongUsage:
        """Return the reply to a command that was typed with invalid arguments. It shows how to use the command."""
        return WrongUsage(self.usage, self.summary)


SharedCommand: TypeAlias = Command[CommandContext, Reply]
AnyCommand: TypeAlias = Command[Any, Any]
