"""Sends a typed message with the files that it mentions. If the message is too large, offers other ways to
send it.

No typed text is lost: a message that was not sent is put into the next prompt.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hermes import clock, errors, home
from hermes.agent.context import tokens
from hermes.agent.context.message_size import MessageTooLarge
from hermes.agent.models.model import ContextOverflow
from hermes.agent.tool import shorten_middle
from hermes.chat.input.attachments import File, attach_files, has_pictures, require_eyes
from hermes.chat.input.question import Option
from hermes.text import format_size, make_printable

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.chat.input.pastes import Pastes
    from hermes.chat.terminal_loop import Chat

OVERFLOW_HINT = (
    "/undo takes the message back into the input, /compress makes room, /model switches to another model."
)
FILE, SHORTENED, EDIT = "file", "shortened", "edit"
SHARE = 0.75
"""The share of the free context that a shortened message fills."""


async def send_message(
    chat: Chat, text: str, typed_text: str | None = None, *, files: Sequence[File] = ()
) -> None:
    """Send a message with `files` and the files that it mentions, and show the answer. If the message is not
    sent, `typed_text` is put into the next prompt."""
    typed_text, quoted = text if typed_text is None else typed_text, list(chat.quoted)
    pasted = chat.prompt_line.pasted
    try:
        message = await asyncio.to_thread(
            attach_files, text, chat.conversation.cwd, pasted=pasted, files=files, quoted=quoted
        )
        if has_pictures(message.content):
            require_eyes((await chat.conversation.prepare()).agent.model)
        for line in message.notes:
            chat.screen.print_note(line)
        answer = await chat.answer(message.content, typed_text=typed_text)
    except MessageTooLarge as problem:
        chat.prefill = typed_text
        await _offer_other_ways(chat, text, typed_text, files, problem)
        return
    except errors.HermesError:
        chat.prefill = typed_text
        raise
    del chat.quoted[: len(quoted)]
    if answer.failure is not None and isinstance(answer.failure.error, ContextOverflow):
        chat.screen.print_note(OVERFLOW_HINT)


async def _offer_other_ways(
    chat: Chat, text: str, typed_text: str, files: Sequence[File], problem: MessageTooLarge
) -> None:
    """Ask how to send a message that is too large, and send it that way. If the person does not choose a way,
    the message is put back into the prompt."""
    chat.screen.print_problem(f"{problem}.")
    options = [
        Option(SHORTENED, "send it shortened: the middle is left out", "s"),
        Option(EDIT, "put it back into the input; /model switches to a model with more room", "e"),
    ]
    if not chat.conversation.incognito:
        options.insert(
            0, Option(FILE, "send it as a file in this folder, which the agent reads in parts", "f")
        )
    chosen = await chat.choose("How do you want to continue?", options, default=len(options) - 1)
    if chosen not in (FILE, SHORTENED):
        return
    parts = _split_message(chat.prompt_line.pastes, text)
    if chosen == SHORTENED:
        most = int(problem.room * SHARE) - tokens.count_text(parts.before + parts.after)
        middle = await asyncio.to_thread(_shorten, parts.longest, max(most, 1))
    else:
        file = await asyncio.to_thread(_save_text, parts.longest, chat.conversation.cwd)
        size = format_size(len(parts.longest.encode("utf-8", "replace")))
        chat.screen.print_note(f"Wrote {make_printable(str(file))} ({size}).")
        middle = f"[the text is in the file {file.name}, {size}: read it in parts]"
    chat.prefill = ""
    await send_message(chat, f"{parts.before}{middle}{parts.after}", typed_text, files=files)


class _Parts(NamedTuple):
    before: str
    longest: str
    """The longest paste of the message, or the whole message if it contains no pastes."""
    after: str


def _split_message(pastes: Pastes, text: str) -> _Parts:
    whole, ranges = pastes.expand(pastes.collapse(text))
    start, end = max(ranges, key=lambda place: place[1] - place[0], default=(0, len(whole)))
    return _Parts(whole[:start], whole[start:end], whole[end:])


def _shorten(text: str, most: int) -> str:
    """Return `text` with its middle left out, so that it has at most `most` tokens."""
    characters = min(len(text), most * 4)
    short = shorten_middle(text, characters)
    while characters > 1 and (size := tokens.count_text(short)) > most:
        characters = max(1, min(characters - 100, characters * most // size))
        short = shorten_middle(text, characters)
    return short


def _save_text(text: str, folder: Path) -> Path:
    stem = f"pasted_{clock.format_stamp()}"
    for number in range(1, 1000):
        file = folder / f"{stem}{f'_{number}' if number > 1 else ''}.txt"
        try:
            with os.fdopen(home.create_private_file(file), "w", encoding="utf-8", errors="replace") as opened:
                opened.write(text)
        except FileExistsError:
            continue
        except OSError as problem:
            raise errors.OutputRefused(f"{file} cannot be written: {problem.strerror}") from problem
        return file
    raise errors.OutputRefused(f"{folder} has too many pasted files")
