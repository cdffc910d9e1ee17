"""The connection to the terminal: Textual's driver for POSIX systems, with two differences.

The driver simplifies emoji that the terminal measures differently from Textual (see `glyphs`). At the start,
it draws a sample of each kind of emoji and asks for the cursor position after each. Until the terminal has
answered, all emoji are simplified.

The driver treats Escape followed immediately by another key as two keys. Textual would treat it as Alt with
that key. Alt keys have no function here, so both keys would be lost.
"""

from __future__ import annotations

import os
import re
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from hermes.browser.glyphs import SAMPLES, Glyphs

READ_AT_ONCE = 4096
TICK_S = 0.1
"""Seconds between two checks for an Escape that no other key has followed."""
BEGINS_SEQUENCE = r"[\[\]OPX^_]"
"""A control sequence begins with Escape and one of these characters."""
ESCAPE_KEY = re.compile(f"\x1b(?!{BEGINS_SEQUENCE}|\\Z)")
PROBE_LINE = "\x1b[2;1H"
"""Moves the cursor to the second line for the test of the emoji. On the first line, the replies of the
terminal would look like modified function keys."""
CURSOR_POSITION, CLEAR_LINE = "\x1b[6n", "\x1b[2K"


class KeyParser(XTermParser):
    """Parses the input from the terminal into keys. An Escape that cannot be the beginning of a control
    sequence is the Escape key."""

    def feed(self, data: str) -> Iterable[Message]:
        if data and self._timeout_time is not None and re.match(f"(?!{BEGINS_SEQUENCE})", data):
            yield from self._end_escape()  # the previous data ended with Escape
        start = 0
        for found in ESCAPE_KEY.finditer(data):
            yield from super().feed(data[start : found.end()])
            yield from self._end_escape()
            start = found.end()
        if start < len(data) or not data:
            yield from super().feed(data[start:])

    def _end_escape(self) -> Iterable[Message]:
        if self._timeout_time is not None:
            self._timeout_time = 0.0
            yield from self.tick()


class TerminalDriver(LinuxDriver):
    _glyphs = Glyphs()
    _measured: list[int]
    _is_measuring = False

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._measured, self._is_measuring = [], True
        for sample in SAMPLES.values():
            super().write(f"{PROBE_LINE}{CLEAR_LINE}{sample}{CURSOR_POSITION}")
        super().write(f"{PROBE_LINE}{CLEAR_LINE}")
        self.flush()

    def write(self, data: str) -> None:
        super().write(self._glyphs.simplify(data))

    def process_message(self, message: Message) -> None:
        """Take the cursor positions with which the terminal answers the samples of emoji that were drawn at the
        start. After the last one, decide which emoji to simplify. All other input is handled by Textual. This
        runs in the input thread."""
        if not (self._is_measuring and isinstance(message, events.CursorPosition)):
            super().process_message(message)
            return
        self._measured.append(message.x)
        if len(self._measured) == len(SAMPLES):
            self._is_measuring = False
            self._glyphs = Glyphs(self._measured)
            self._loop.call_soon_threadsafe(self._redraw)

    def _redraw(self) -> None:
        if self._app.screen_stack:
            for widget in self._app.screen.walk_children(with_self=True):
                widget.refresh()

    def run_input_thread(self) -> None:
        """Read keys as Textual does, but with `KeyParser`."""
        selector = selectors.SelectSelector()
        selector.register(self.fileno, selectors.EVENT_READ)
        parser, decoder = KeyParser(self._debug), getincrementaldecoder("utf-8")(errors="replace")
        try:
            while not self.exit_event.is_set():
                text = decoder.decode(os.read(self.fileno, READ_AT_ONCE)) if selector.select(TICK_S) else ""
                for message in parser.feed(text) if text else ():
                    self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
        finally:
            selector.close()
            try:
                for _ in parser.feed(""):
                    pass
            except (EOFError, ParseError):
                pass
