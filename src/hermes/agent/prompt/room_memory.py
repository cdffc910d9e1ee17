"""The memory of a room that several people share. Each entry names its author.

An entry is one line: `[Ann #1f3a5c7e9b2d4f60, 2026-05-02] The server is called kestrel.` The program writes
the part in brackets. It names the day, and the speaker of the turn in which the agent saved the entry. If
several people spoke, or the speaker is uncertain, the author is "people in this room". Anybody in the room
can ask the agent to change or remove such an entry. Any other entry is changed or removed only at the request
of its author or of an owner of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hermes import clock
from hermes.agent.prompt.memory_files import Memory, MemoryContent, check_entry, find_entry, make_refusal
from hermes.agent.prompt.participants import Speaker, attribute, can_change
from hermes.recall.tool.prompt_safety import neutralise_fenced

_NOTE = re.compile(r"\[(?P<author>[^\[\]\n]{1,120}), (?P<day>\d{4}-\d\d-\d\d)\] (?P<text>.+)")
NOT_KNOWN = "not known who"
"""The author of an entry without a mark. Such an entry comes from an earlier version, or was written with an
editor."""


class Note(NamedTuple):
    author: str
    day: str
    text: str

    @property
    def entry(self) -> str:
        return f"[{self.author}, {self.day}] {self.text}"


class RoomMemory:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def read(self, target: str) -> MemoryContent:
        """Return the content of one of the two memory files of the room. Each entry is one line that begins with its
        author."""
        there = self._memory.read(target)
        return there._replace(entries=[_format_note(target, _parse_note(entry)) for entry in there.entries])

    def add(self, target: str, content: str, speakers: Sequence[Speaker]) -> MemoryContent:
        note = _make_note(content, speakers)

        def change(entries: list[str]) -> list[str]:
            known = map(_parse_note, entries)
            twice = any((other.author, other.text) == (note.author, note.text) for other in known)
            return entries if twice else [*entries, note.entry]

        return self._memory.change(target, change)

    def replace(self, target: str, old_text: str, content: str, speakers: Sequence[Speaker]) -> MemoryContent:
        note = _make_note(content, speakers)

        def change(entries: list[str]) -> list[str]:
            at = _find_changeable(entries, old_text, speakers)
            return [*entries[:at], note.entry, *entries[at + 1 :]]

        return self._memory.change(target, change)

    def remove(self, target: str, old_text: str, speakers: Sequence[Speaker]) -> MemoryContent:
        def change(entries: list[str]) -> list[str]:
            at = _find_changeable(entries, old_text, speakers)
            return [*entries[:at], *entries[at + 1 :]]

        return self._memory.change(target, change)


def _make_note(content: str, speakers: Sequence[Speaker]) -> Note:
    text = " ".join(neutralise_fenced(check_entry(content)).split())
    return Note(attribute(speakers), clock.format_day(clock.now()), text)


def _parse_note(entry: str) -> Note:
    line = " ".join(entry.split())
    found = _NOTE.fullmatch(line)
    return Note(NOT_KNOWN, "", line) if found is None else Note(found["author"], found["day"], found["text"])


def _format_note(target: str, note: Note) -> str:
    origin = f"said by {note.author} on {note.day}" if note.day else NOT_KNOWN
    about = f"about {note.author}, " if target == "user" and note.day else ""
    return f"- {about}{origin}: {note.text}"


def _find_changeable(entries: list[str], old_text: str, speakers: Sequence[Speaker]) -> int:
    """Return the index of the memory entry that contains `old_text`. Only entries that the speakers may change are
    searched. Raise an error if only an entry that they may not change contains it."""
    notes = [_parse_note(entry) for entry in entries]
    theirs = [at for at, note in enumerate(notes) if can_change(note.author, speakers)]
    fragment = " ".join(old_text.split())
    others = [
        note for at, note in enumerate(notes) if at not in theirs and fragment and fragment in note.text
    ]
    if others and not any(fragment in notes[at].text for at in theirs):
        whose = others[0].author
        who = (
            "only an owner of the machine"
            if whose == NOT_KNOWN
            else "only its author or an owner of the machine"
        )
        raise make_refusal(
            f"the entry does not belong to the speakers of this turn (author: {whose}); {who} can have it changed,"
            " in a turn without other speakers"
        )
    return theirs[find_entry([notes[at].text for at in theirs], fragment)]
