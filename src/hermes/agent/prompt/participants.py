"""The people of a shared session: the mark that each of their messages begins with, and who spoke in a turn.

In a session that several people share, every message of a person begins with `[NAME #SIGN] `. The program writes the
mark and takes look-alikes out of whatever people write, so that the mark at the beginning of a message can be trusted.
The sign belongs to the person; the name is whatever they call themselves.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes.text import extract_text

if TYPE_CHECKING:
    from hermes.agent.transcript import Record

EVERYBODY = "people in this room"
"""Whom something is attributed to when it is not certain who said it."""
NOBODY_KNOWN = "somebody"
UNVERIFIED = "unverified"
"""Behind the name of a speaker whom the platform gives no id: anybody may call themselves so."""
SIGN_DIGITS = 16
_MARK = re.compile(rf"\[(?:(?P<name>[^\[\]#\n]{{0,80}}) )?#(?P<sign>[0-9a-f]{{{SIGN_DIGITS}}})\] ")
_SIGN = re.compile(rf"#([0-9a-f]{{{SIGN_DIGITS}}})\Z")
_OTHER_MARKS = re.compile(
    rf"\[(?:[^\[\]#\n]{{0,80}} )?#[0-9a-f]{{8}}\] |\[{NOBODY_KNOWN}\] |\[[^\[\]#\n]{{0,80}}, {UNVERIFIED}\] "
)
"""Those of earlier versions, and of people whom the platform gives no id."""

Row = dict[str, Any]


class Speaker(NamedTuple):
    """A person who said something in a shared session."""

    name: str
    sign: str
    """Sixteen hexadecimal digits, the same for a person whatever they call themselves. Empty: not known who it is."""
    owns_machine: bool = False

    def __str__(self) -> str:
        return f"{self.name} #{self.sign}".strip() if self.sign else EVERYBODY


UNKNOWN = Speaker("", "")
Speakers = Callable[[], Awaitable[Sequence[Speaker]]]
"""Who spoke in the turn that runs."""


def make_sign(participant: str) -> str:
    return sha256(participant.encode("utf-8", "surrogatepass")).hexdigest()[:SIGN_DIGITS]


def format_mark(name: str, participant: str | None) -> str:
    """What a message begins with. `name` must be a label already."""
    if participant:
        return f"[{f'{name} #{make_sign(participant)}'.strip()}] "
    return f"[{name}, {UNVERIFIED}] " if name else f"[{NOBODY_KNOWN}] "


def find_speaker(content: object) -> Speaker:
    """Whose message this is, by its mark."""
    found = _MARK.match(_get_beginning(content))
    return UNKNOWN if found is None else Speaker(found["name"] or "", found["sign"])


def strip_mark(text: str) -> str:
    """A message without the mark it begins with, if it has one."""
    found = _MARK.match(text) or _OTHER_MARKS.match(text)
    return text[found.end() :] if found else text


def is_marked(rows: Iterable[Row]) -> bool:
    """Whether these messages are those of a shared session."""
    beginnings = [_get_beginning(row.get("content")) for row in rows if row.get("role") == "user"]
    return any(_MARK.match(text) or _OTHER_MARKS.match(text) for text in beginnings)


def list_speakers(rows: Iterable[Row]) -> list[Speaker]:
    """Everybody who said something in these messages, once each."""
    return _deduplicate(find_speaker(row.get("content")) for row in rows if row.get("role") == "user")


def attribute(speakers: Sequence[Speaker]) -> str:
    """Whose word something is that was noted in a turn in which these people spoke."""
    return str(speakers[0]) if len(speakers) == 1 else EVERYBODY


def can_change(author: str, speakers: Sequence[Speaker]) -> bool:
    """Whether what is attributed to `author` can be changed in a turn in which these people spoke: each of them may."""
    if author == EVERYBODY:
        return bool(speakers)
    found = _SIGN.search(author)
    return bool(speakers) and all(
        speaker.owns_machine or (found is not None and speaker.sign == found[1]) for speaker in speakers
    )


class SharedRoom:
    """A session that several people share, while it is at work."""

    def __init__(self) -> None:
        self._owners: set[str] = set()
        self._messages: list[Any] = []
        """What was said in this turn, as it was said to the agent."""

    def note_owner(self, participant: str | None, owns_machine: bool) -> None:
        """Note whether the machine belongs to a participant, each time they speak."""
        if participant:
            change = self._owners.add if owns_machine else self._owners.discard
            change(make_sign(participant))

    def begin_turn(self, content: Any) -> None:
        self._messages = [] if content is None else [content]

    def hear(self, content: Any) -> None:
        """Something more was said while the turn runs."""
        self._messages.append(content)

    async def speakers(self, record: Record) -> list[Speaker]:
        """Who spoke in this turn: all whose messages came with it, or wait for an answer since the last one."""
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
    if isinstance(content, list):  # text and pictures: the text comes first
        content = next((part.get("text") for part in content if isinstance(part, dict)), None)
    return extract_text(content)[:200] if isinstance(content, str) else ""
