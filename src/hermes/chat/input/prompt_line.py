"""The prompt line. Enter sends, Esc Enter (or Alt-Enter, Ctrl-J) inserts a line break, Tab completes.

The input history is in the file `chat_history` of the home. Files mentioned as `@file` are attached to the
message.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from hermes import clock, errors, home
from hermes.agent.tool import shorten_middle
from hermes.chat.input import question
from hermes.chat.input.question import Option
from hermes.logs import get_logger
from hermes.recall.tool.prompt_safety import close_fence, fence_text, to_one_line
from hermes.store.engine_choice import sealed_files
from hermes.terminal_input import SILENCE_S
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.conversation.commands.command_types import AnyCommand
    from hermes.db.session_db import SessionDB

_log = get_logger(__name__)

T = TypeVar("T")

HISTORY = "chat_history"
LONGEST_SHOWN, MOST_LINES_SHOWN = 2000, 12
"""A paste beyond one of these limits is abbreviated."""
LONGEST_REMEMBERED = 10 * LONGEST_SHOWN

STYLE = Style.from_dict(
    {
        "prompt": "#ffd700 bold",
        "incognito": "#af87ff bold",
        "bottom-toolbar": "noreverse #808080",
        "bottom-toolbar.text": "noreverse #808080",
    }
)

_MARK = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")
MOST_OFFERED = 30
_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")
MOST_FILES = 20
LONGEST_NAME = 500


class Pastes:
    """Long pastes. The prompt shows a short mark for each; sending expands the marks."""

    def __init__(self) -> None:
        self._pastes: list[str] = []

    def abbreviate(self, text: str) -> str:
        """Return the text that the prompt shows for a paste. A short paste is shown as is."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if len(text) <= LONGEST_SHOWN and lines <= MOST_LINES_SHOWN:
            return text
        self._pastes.append(text)
        return f"[pasted #{len(self._pastes)}: {lines:,} lines, {len(text):,} characters]"

    def expand(self, text: str) -> str:
        """Replace the marks in a text by their pastes. An unknown mark is left unchanged."""
        if not self._pastes:
            return text
        return _MARK.sub(self._find_paste, text)

    def _find_paste(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._pastes[number - 1] if 0 < number <= len(self._pastes) else mark[0]


class PromptLine:
    def __init__(
        self,
        completer: Completer,
        toolbar: Callable[[], str],
        *,
        incognito: bool = False,
        keyboard: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """`keyboard` and `output` replace the terminal in tests."""
        self.pastes = Pastes()
        self.open_output: Callable[[], Coroutine[Any, Any, None]] | None = None
        """The action of Ctrl-O."""
        self._opening: asyncio.Task[None] | None = None
        self._incognito = incognito
        self._session: PromptSession[str] = PromptSession(
            history=_ExpandedHistory(self.pastes, None if incognito else open_history_file()),
            completer=completer,
            complete_while_typing=True,
            complete_in_thread=True,
            multiline=True,
            key_bindings=self._bind_keys(),
            bottom_toolbar=lambda: FormattedText([("", toolbar())]),
            prompt_continuation=lambda width, _line, _wrapped: " " * width,
            reserve_space_for_menu=6,
            style=STYLE,
            input=keyboard,
            output=output,
        )
        self._session.app.key_processor.after_key_press += self._forget_answer
        self._session.default_buffer.on_text_changed += self._forget_answer
        self._output = output
        self._gate: question.Gate | None = None
        self._is_dumb = output is None and is_dumb_terminal()
        self._ignores_enter_until = 0.0
        """The time until which Enter is ignored. A person who answers a question with `y` may press Enter out
        of habit; this Enter must not send the text of the next prompt."""
        self._is_drawn = asyncio.Event()

    @property
    def keyboard(self) -> Input:
        return self._session.app.input

    async def ask(self, prefill: str = "") -> str:
        """Return the next input of the person. Raises EOFError if they leave, KeyboardInterrupt for Ctrl-C."""
        mark = ("class:incognito", "(incognito) ❯ ") if self._incognito else ("class:prompt", "❯ ")
        if prefill and self._gate is not None and self._gate.has_text:
            prefill += "\n"  # the text typed before the last question follows
        self._gate = None
        message = [mark]
        if self._is_dumb:  # prompt_toolkit does not print the default on dumb terminals
            message.append(("", prefill))
        app = self._session.app
        if not self._is_drawn.is_set():
            app.after_render += lambda _: self._is_drawn.set()
        text = await self._session.prompt_async(FormattedText(message), default=prefill, handle_sigint=False)
        return self.pastes.expand(text)

    async def wait_until_drawn(self) -> None:
        """Wait until the first prompt is on the screen."""
        await self._is_drawn.wait()

    async def print_above(self, say: Callable[[], None]) -> None:
        """Print something, above the prompt if it is shown."""
        if self._session.app.is_running:
            await run_in_terminal(say)
        else:
            say()

    def refresh(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()

    async def choose(self, text: str, options: Sequence[Option[T]], *, default: int = 0) -> T | None:
        """Return the value of the chosen option; None for Esc or Ctrl-D. Ctrl-C raises `question.Stopped`.

        `default` is the position of the option that is marked at first. For an approval this must be a
        denial.
        """
        gate = self._gate = self._make_gate()
        choice = question.Choice(
            text, options, default, keyboard=self.keyboard, output=self._output, gate=gate
        )
        chosen = await choice.ask()
        if choice.may_get_enter:
            self._ignores_enter_until = time.monotonic() + SILENCE_S
        return chosen

    async def ask_line(self, text: str) -> str | None:
        """Ask for one line; None for Esc, Ctrl-D or an empty line. Ctrl-C raises `question.Stopped`."""
        self._ignores_enter_until = 0.0
        gate = self._gate = self._make_gate()
        return await question.ask_line(text, keyboard=self.keyboard, output=self._output, gate=gate)

    def _make_gate(self) -> question.Gate:
        """Return a gate. It waits longer for the response of a terminal that has answered a prompt before."""
        has_answered = self._session.app.renderer.cpr_support == CPR_Support.SUPPORTED
        return question.Gate(has_answered=has_answered)

    def _forget_answer(self, _: object) -> None:
        """Stop ignoring Enter after the first key. Keys typed ahead are processed before the first drawing
        and do not count."""
        if self._is_dumb or self._session.app.renderer.last_rendered_screen is not None:
            self._ignores_enter_until = 0.0

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            if time.monotonic() >= self._ignores_enter_until:
                event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self.pastes.abbreviate(event.data))

        @keys.add("c-o")
        def _(event: KeyPressEvent) -> None:
            if self.open_output is not None:
                self._opening = event.app.create_background_task(self.open_output())

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")

        return keys


class _ExpandedHistory(History):
    """The input history with expanded pastes. Very long inputs are omitted, to keep the file small."""

    def __init__(self, pastes: Pastes, file: Path | None) -> None:
        super().__init__()
        self._pastes = pastes
        self._history: History = InMemoryHistory() if file is None else InputHistory(file)

    def load_history_strings(self) -> Iterable[str]:
        return self._history.load_history_strings()

    def append_string(self, string: str) -> None:
        whole = self._pastes.expand(string)
        if len(whole) <= LONGEST_REMEMBERED:
            super().append_string(whole)

    def store_string(self, string: str) -> None:
        self._history.store_string(string)


def open_history_file() -> Path | None:
    """Create the history file with private permissions and return its path. Return None if that fails."""
    file = home.get_hermes_home() / HISTORY
    try:
        home.make_private_folder(file.parent)
        os.close(home.open_private_file(file, os.O_WRONLY | os.O_CREAT))
    except OSError as problem:
        _log.warning("input history is not saved: %s: %s", file, problem.strerror)
        return None
    return file


# ---------------------------------------------------------------- input history


class InputHistory(History):
    """The input history. If the store is encrypted, each entry is encrypted.

    A plain file has the format of prompt_toolkit's `FileHistory`. An encrypted entry contains the same text.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._warned = False

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, newest first."""
        try:
            return reversed(_decode_entries(sealed_files().read(self._file)))
        except FileNotFoundError:
            return ()
        except (errors.HermesError, OSError) as problem:
            self._warn(problem)
            return ()

    def store_string(self, string: str) -> None:
        """Append an entry. Each call checks whether to encrypt, because another process may encrypt the store
        meanwhile."""
        try:
            sealed_files().append(self._file, _encode_entry(string))
        except (errors.HermesError, OSError) as problem:  # the chat continues without history
            self._warn(problem)

    def _warn(self, problem: Exception) -> None:
        if not self._warned:
            _log.warning("input history is not saved in %s: %s", self._file, problem)
        self._warned = True


def _encode_entry(string: str) -> bytes:
    lines = "".join(f"+{line}\n" for line in string.split("\n"))
    return f"\n# {clock.format_iso(clock.now())}\n{lines}".encode("utf-8", "replace")


def _decode_entries(data: bytes) -> list[str]:
    """Return the entries, oldest first."""
    entries, lines = list[str](), list[str]()
    for line in [*data.decode("utf-8", "replace").split("\n"), ""]:
        if line.startswith("+"):
            lines.append(line[1:])
        elif lines:
            entries.append("\n".join(lines))
            lines = []
    return entries


# ---------------------------------------------------------------- completion


class ChatCompleter(Completer):
    """Completes commands, titles after commands that take one, and files after `@`."""

    def __init__(self, db: SessionDB, commands: Iterable[AnyCommand], cwd: Callable[[], Path]) -> None:
        """`cwd` returns the folder in which files are looked up. It is called for each completion."""
        self._db, self._commands, self._cwd = db, list(commands), cwd

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        line = document.current_line_before_cursor
        if document.text.startswith("/") and document.cursor_position_row == 0:
            yield from self._complete_command(line)
            return
        word = line.rpartition(" ")[2]
        if word.startswith("@"):
            yield from self._complete_files(word[1:])

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

    def _complete_files(self, begun: str) -> Iterator[Completion]:
        folder, _, start = begun.rpartition("/")
        where = self._cwd() / Path(f"{folder}/" if folder or begun.startswith("/") else ".").expanduser()
        try:
            found = sorted(where.iterdir())
        except OSError:
            return
        matching = [path for path in found if path.name.startswith(start) and (start or path.name[0] != ".")]
        for path in matching[:MOST_OFFERED]:
            ending = "/" if path.is_dir() else ""
            if make_printable(path.name) == path.name and " " not in path.name:
                yield Completion(f"{path.name}{ending}", -len(start))


# ---------------------------------------------------------------- mentioned files


def attach_files(text: str, cwd: Path) -> str:
    """Return the message followed by the content of every text file that it mentions.

    A mention without such a file is left unchanged, because an `@` can have another meaning.
    """
    names = dict.fromkeys(mention[1] or mention[2].rstrip(".,;:!?)") for mention in _MENTION.finditer(text))
    found = [
        (name, read) for name in names if (read := _read_text(cwd / Path(name).expanduser())) is not None
    ]
    parts = [
        f"[file {to_one_line(name, LONGEST_NAME)}]\n{fence_text(shorten_middle(content))}"
        for name, content in found[:MOST_FILES]
    ]
    return "\n\n".join([close_fence(text), *parts]) if parts else text


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8") if file.is_file() else None
    except (OSError, ValueError):  # not readable, not text, or an invalid name
        return None
