"""What the agent remembers from one conversation to the next: two short files that a person can read and edit.

`memories/MEMORY.md` is about the work, `memories/USER.md` about the person. Entries are texts with a line of their own
(`§`) between them. Both are read into the prompt of every new session, so they have a budget, hold no secrets, and
nothing in them can hide or pass for an instruction of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hermes import errors, home, secrets
from hermes.atomic_files import lock_private_folder
from hermes.recall.tool.prompt_safety import neutralise
from hermes.store.engine_choice import sealed_files

FILES = {"memory": "MEMORY.md", "user": "USER.md"}
BUDGETS = {"memory": 2_200, "user": 1_400}
"""Characters of each, marks between entries included."""
MARK = "§"
BETWEEN = f"\n{MARK}\n"
LARGEST_FILE = 100_000
"""Bytes of a file, as a person may have made it, that are looked at."""


class MemoryContent(NamedTuple):
    """One of the two, as it is now."""

    target: str
    entries: list[str]
    used: int
    budget: int

    @property
    def text(self) -> str:
        return BETWEEN.join(self.entries)

    @property
    def fullness(self) -> str:
        return f"{self.used:,} of {self.budget:,} characters, {100 * self.used // self.budget} %"


class Memory:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        return self._folder or home.get_hermes_home() / "memories"

    def read(self, target: str) -> MemoryContent:
        """What is there, made harmless: a person or another program may have written it."""
        return _make_content(
            target, [secrets.redact(entry) for entry in self._read_entries(self._get_file(target))]
        )

    def add(self, target: str, content: str) -> MemoryContent:
        """One entry more; what is known already is not kept twice."""
        entry = check_entry(content)
        return self.change(target, lambda entries: entries if entry in entries else [*entries, entry])

    def replace(self, target: str, old_text: str, content: str) -> MemoryContent:
        """Another entry in the place of the only one that holds this text."""
        entry = check_entry(content)

        def change(entries: list[str]) -> list[str]:
            at = find_entry(entries, old_text)
            return [*entries[:at], entry, *entries[at + 1 :]]

        return self.change(target, change)

    def remove(self, target: str, old_text: str) -> MemoryContent:
        def change(entries: list[str]) -> list[str]:
            at = find_entry(entries, old_text)
            return [*entries[:at], *entries[at + 1 :]]

        return self.change(target, change)

    def change(self, target: str, change: Callable[[list[str]], list[str]]) -> MemoryContent:
        """Other entries in the place of those that are there, under the lock of the folder."""
        file = self._get_file(target)
        with lock_private_folder(file.parent):
            before = self._read_entries(file)
            if before and sealed_files().size(file) > LARGEST_FILE:
                raise make_refusal(f"{file} is too large to be changed here; it has to be shortened by hand")
            after = change(list(before))
            made = _make_content(target, after)
            if made.used > made.budget and made.used > _make_content(target, before).used:
                raise make_refusal(
                    f"there is no room: it would take {made.used:,} of {made.budget:,} characters; replace or remove"
                    " something first, or say it in fewer words"
                )
            if after != before:
                sealed_files().write(file, f"{made.text}\n".encode() if after else b"")
        return made

    def _get_file(self, target: str) -> Path:
        if target not in FILES:
            raise make_refusal(f"target is one of {', '.join(FILES)}")
        return self.folder / FILES[target]

    def _read_entries(self, file: Path) -> list[str]:
        try:
            text = sealed_files().read(file, LARGEST_FILE).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise make_refusal(f"{file} cannot be read: {problem.strerror or problem}") from problem
        lines = "\n".join(line.rstrip() for line in neutralise(text).splitlines())
        parts = f"\n{lines}\n".split(BETWEEN)
        return list(dict.fromkeys(part.strip() for part in parts if part.strip(f"{MARK}\n ")))


def check_entry(content: str) -> str:
    """An entry as it is kept, or why it is not."""
    plain = neutralise(content).strip()
    if found := secrets.find_secrets(plain):
        raise make_refusal(f"that holds a secret ({found[0].name}); memory keeps none, only where to find it")
    lines = [line.rstrip() for line in plain.splitlines()]
    entry = "\n".join(line for line in lines if line != MARK).strip()
    if not entry:
        raise make_refusal("there is nothing to remember in that")
    return entry


def find_entry(entries: list[str], old_text: str) -> int:
    """The place of the only entry that holds this text; of several, the one that is this text."""
    fragment = old_text.strip()
    if not fragment:
        raise make_refusal("say which entry: a piece of its text")
    found = [number for number, entry in enumerate(entries) if fragment in entry]
    exact = [number for number in found if entries[number] == fragment]
    if len(found) == 1 or len(exact) == 1:
        return (exact or found)[0]
    if not found:
        raise make_refusal(f"no entry holds {fragment[:80]!r}")
    raise make_refusal(f"{len(found)} entries hold {fragment[:80]!r}; say more of the one that is meant")


def _make_content(target: str, entries: list[str]) -> MemoryContent:
    return MemoryContent(target, entries, len(BETWEEN.join(entries)), BUDGETS[target])


def make_refusal(sentence: str) -> errors.HermesError:
    return errors.make_error(errors.InvalidArgument, sentence)
