"""The agent's memory across conversations: two short files that a person can read and edit.

`memories/MEMORY.md` is about the work, `memories/USER.md` about the person. Entries are separated by a line
with `§`. Both files are part of the prompt of every new session. They therefore have a size limit and contain
no secrets, and their text cannot hide or imitate instructions of the program.
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
"""The size limit of each file in characters, including the separators."""
MARK = "§"
BETWEEN = f"\n{MARK}\n"
LARGEST_FILE = 100_000
"""The maximum number of bytes that are read from a file. A person may have made the file larger than the
agent could."""


class MemoryContent(NamedTuple):
    """The current content of one of the two memory files."""

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
        """Return the content of a memory file with secrets redacted. The file can contain secrets, because a person
        or another program may have written it."""
        return _make_content(
            target, [secrets.redact(entry) for entry in self._read_entries(self._get_file(target))]
        )

    def add(self, target: str, content: str) -> MemoryContent:
        """Add an entry to the end of a memory file, unless the file already has this entry. Return the new content of
        the file."""
        entry = check_entry(content)
        return self.change(target, lambda entries: entries if entry in entries else [*entries, entry])

    def replace(self, target: str, old_text: str, content: str) -> MemoryContent:
        """Replace the entry that contains `old_text` by `content` in a memory file. Return the new content of the
        file. Raise an error if `find_entry` does not find exactly one entry."""
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
        """Replace the entries of a memory file, and return its new content. `change` is called with the old entries
        and returns the new ones. The folder of the file is locked meanwhile."""
        file = self._get_file(target)
        with lock_private_folder(file.parent):
            before = self._read_entries(file)
            if before and sealed_files().size(file) > LARGEST_FILE:
                raise make_refusal(f"{file} is too large to change here; shorten it by hand")
            after = change(list(before))
            made = _make_content(target, after)
            if made.used > made.budget and made.used > _make_content(target, before).used:
                raise make_refusal(
                    f"there is no room: it would take {made.used:,} of {made.budget:,} characters; replace or remove"
                    " something first, or use fewer words"
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
    """Return a new memory entry in its normalised form. Raise `InvalidArgument` if the entry contains a secret or is
    empty."""
    plain = neutralise(content).strip()
    if found := secrets.find_secrets(plain):
        raise make_refusal(f"the text contains a secret ({found[0].name}); save only where to find it")
    lines = [line.rstrip() for line in plain.splitlines()]
    entry = "\n".join(line for line in lines if line != MARK).strip()
    if not entry:
        raise make_refusal("there is nothing to remember in the text")
    return entry


def find_entry(entries: list[str], old_text: str) -> int:
    """Return the index of the only memory entry that contains `old_text`. If several entries contain it, return the
    index of the one that equals it. Raise an error if no entry contains it, or if several do and not exactly one
    equals it."""
    fragment = old_text.strip()
    if not fragment:
        raise make_refusal("name the entry by a piece of its text")
    found = [number for number, entry in enumerate(entries) if fragment in entry]
    exact = [number for number in found if entries[number] == fragment]
    if len(found) == 1 or len(exact) == 1:
        return (exact or found)[0]
    if not found:
        raise make_refusal(f"no entry contains {fragment[:80]!r}")
    raise make_refusal(f"{len(found)} entries contain {fragment[:80]!r}; give more of its text")


def _make_content(target: str, entries: list[str]) -> MemoryContent:
    return MemoryContent(target, entries, len(BETWEEN.join(entries)), BUDGETS[target])


def make_refusal(sentence: str) -> errors.HermesError:
    return errors.make_error(errors.InvalidArgument, sentence)
