"""Completion in the prompt: commands, titles after commands that accept a title, and files after `@`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from hermes import errors
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.conversation.commands.command_types import AnyCommand
    from hermes.db.session_db import SessionDB

MOST_OFFERED = 30
_MENTION = re.compile(r"(?<!\S)@(?:\"(?P<quoted>[^\"\n]*)|(?P<bare>[^\s\"]*))\Z")
"""A mention of a file at the end of a line. The mention may be incomplete."""


class ChatCompleter(Completer):
    """Completes commands, titles after commands that accept a title, and files after `@`."""

    def __init__(self, db: SessionDB, commands: Iterable[AnyCommand], cwd: Callable[[], Path]) -> None:
        """`cwd` is a function that returns the folder in which files are looked up. It is called for each
        completion."""
        self._db, self._commands, self._cwd = db, list(commands), cwd

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        line = document.current_line_before_cursor
        if document.text.startswith("/") and document.cursor_position_row == 0:
            yield from self._complete_command(line)
            return
        mention = _MENTION.search(line)
        if mention is not None:
            yield from self._complete_files(mention)

    def _complete_command(self, line: str) -> Iterator[Completion]:
        name, space, rest = line.partition(" ")
        if not space:
            for command in self._commands:
                if f"/{command.name}".startswith(name):
                    yield Completion(
                        f"/{command.name}", -len(name), display_meta=command.summary, display=command.usage
                    )
            return
        command_meant = next((command for command in self._commands if f"/{command.name}" == name), None)
        if command_meant is not None and command_meant.takes_session:
            with suppress(errors.StoreError):  # no completions from a busy store
                for row in self._db.starting_with(rest, MOST_OFFERED):
                    offered = row["title"] or row["id"]
                    yield Completion(
                        offered, -len(rest), display_meta=make_printable(row["preview"], width_limit=40)
                    )

    def _complete_files(self, mention: re.Match[str]) -> Iterator[Completion]:
        """Yield the files whose names begin with the mentioned text. A name with spaces is put in quotation
        marks."""
        begun = mention["bare"] if mention["quoted"] is None else mention["quoted"]
        folder, slash, start = begun.rpartition("/")
        where = self._cwd() / Path(f"{folder}/" if folder or begun.startswith("/") else ".").expanduser()
        try:
            found = sorted(where.iterdir())
        except OSError:
            return
        matching = [path for path in found if path.name.startswith(start) and (start or path.name[0] != ".")]
        for path in matching[:MOST_OFFERED]:
            name = f"{path.name}/" if path.is_dir() else path.name
            if make_printable(path.name) != path.name or '"' in path.name:
                continue
            if mention["quoted"] is None and " " not in path.name:
                yield Completion(name, -len(start))
            else:
                end = "" if path.is_dir() else '"'
                yield Completion(f'@"{folder}{slash}{name}{end}', -len(mention[0]), display=name)
