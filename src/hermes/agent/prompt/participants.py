"""The participants of a shared session: the speaker mark of each message, and the speakers of a turn.

In a session that several people share, every message by a person begins with the mark `[NAME #SIGN] `. The
program writes the mark. It removes similar text from the messages that people write, so the mark at the
beginning of a message can be trusted. The sign identifies the person. The person chooses the name.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.message_content import read_text

if TYPE_CHECKING:
    from hermes.agent.transcript import Record

EVERYBODY = "people in this room"
"""The attribution of a statement whose speaker is uncertain."""
NOBODY_KNOWN = "somebody"
UNVERIFIED = "unverified"
"""Written after the name of a speaker for whom the platform provides no id, because anyone can use that
name."""
SIGN_DIGITS = 16
_MARK = re.compile(rf"\[(?:(?P<name>[^\[\]#\n]{{0,80}}) )?#(?P<sign>[0-9a-f]{{{SIGN_DIGITS}}})\] ")
_SIGN = re.compile(rf"#([0-9a-f]{{{SIGN_DIGITS}}})\Z")
_OTHER_MARKS = re.compile(
    rf"\[(?:[^\[\]#\n]{{0,80}} )?#[0-9a-f]{{8}}\] |\[{NOBODY_KNOWN}\] |\[[^\[\]#\n]{{0,80}}, {UNVERIFIED}\] "
)
"""Marks in the format of earlier versions, and marks of speakers for whom the platform provides no id."""

Row = dict[str, Any]


class Speaker(NamedTuple):
    """A person who wrote in a shared session."""

    name: str
    sign: str
    """Sixteen hexadecimal digits that identify the person, whatever name they use. Empty if the person is
    unknown."""
    owns_machine: bool = False

    def __str__(self) -> str:
        return f"{self.name} #{self.sign}".strip() if self.sign else EVERYBODY


UNKNOWN = Speaker("", "")
Speakers = Callable[[], Awaitable[Sequence[Speaker]]]
"""Returns the speakers of the current turn."""


def make_sign(participant: str) -> str:
    return sha256(participant.encode("utf-8", "surrogatepass")).hexdigest()[:SIGN_DIGITS]


def format_mark(name: str, participant: str | None) -> str:
    """Return the speaker mark that a message of a shared session begins with. `name` must already be a valid label.
    `participant` is the id of the speaker; None if it is not known."""
    if participant:
        return f"[{f'{name} #{make_sign(participant)}'.strip()}] "
    return f"[{name}, {UNVERIFIED}] " if name else f"[{NOBODY_KNOWN}] "


def find_speaker(content: object) -> Speaker:
    """Return the speaker of a message, read from its mark; `UNKNOWN` if the message has no mark with a
    sign."""
    found = _MARK.match(_get_beginning(content))
    return UNKNOWN if found is None else Speaker(found["name"] or "", found["sign"])


def strip_mark(text: str) -> str:
    """Return a message without its speaker mark, if it has one."""
    found = _MARK.match(text) or _OTHER_MARKS.match(text)
    return text[found.end() :] if found else text


def is_marked(rows: Iterable[Row]) -> bool:
    """Return whether these messages belong to a shared session, that is, whether one of them has a speaker
    mark."""
    beginnings = [_get_beginning(row.get("content")) for row in rows if row.get("role") == "user"]
    return any(_MARK.match(text) or _OTHER_MARKS.match(text) for text in beginnings)


def list_speakers(rows: Iterable[Row]) -> list[Speaker]:
    """Return the speakers of these messages, each once."""
    return _deduplicate(find_speaker(row.get("content")) for row in rows if row.get("role") == "user")


def attribute(speakers: Sequence[Speaker]) -> str:
    """Return the author to record for an entry of the memory or a skill that the agent saves in a turn with these
    speakers."""
    return str(speakers[0]) if len(speakers) == 1 else EVERYBODY


def can_change(author: str, speakers: Sequence[Speaker]) -> bool:
    """Return whether a turn with these speakers may change an entry of the memory or a skill whose recorded author is
    `author`. Every speaker must be the author or an owner of the machine. If `author` is `EVERYBODY`, anybody may
    change it."""
    if author == EVERYBODY:
        return bool(speakers)
    found = _SIGN.search(author)
    return bool(speakers) and all(
        speaker.owns_machine or (found is not None and speaker.sign == found[1]) for speaker in speakers
    )


class SharedRoom:
    """What is known about the people in a shared session while the program runs: who of them owns the machine, and
    who speaks in the current turn."""

    def __init__(self) -> None:
        self._owners: set[str] = set()
        self._messages: list[Any] = []
        """The messages of the current turn, in the form in which the agent received them."""

    def note_owner(self, participant: str | None, owns_machine: bool) -> None:
        """Record whether a participant of the room owns the machine. The caller does this for each message of the
        participant."""
        if participant:
            change = self._owners.add if owns_machine else self._owners.discard
            change(make_sign(participant))

    def begin_turn(self, content: Any) -> None:
        self._messages = [] if content is None else [content]

    def hear(self, content: Any) -> None:
        """Record a message that a participant added to the current turn while the turn was already running."""
        self._messages.append(content)

    async def speakers(self, record: Record) -> list[Speaker]:
        """Return the authors of the messages of the current turn, and of all messages after the last complete
        answer."""
        rows = await record.context()
        answers = [
            at for at, row in enumerate(rows) if row.get("role") == "assistant" and not row.get("tool_calls")
        ]
        open_rows = rows[answers[-1] + 1 :] if answers else rows
        prompts = [row.get("content") for row in open_rows if row.get("role") == "user"]
        return [
            speaker._replace(owns_machine=speaker.sign in self._owners)
            for speaker in _deduplicate(map(find_speaker, (*prompts, *self._messages)))
        ]


def _deduplicate(speakers: Iterable[Speaker]) -> list[Speaker]:
    return list({speaker.sign: speaker for speaker in speakers}.values())


def _get_beginning(content: object) -> str:
    if isinstance(content, list):  # text and images: the text comes first
        content = next((part.get("text") for part in content if isinstance(part, dict)), None)
    return read_text(content)[:200] if isinstance(content, str) else ""
