"""Assembles the model's answer to one request from the pieces of its stream, and saves the text received so
far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import reasoning
from hermes.agent.events import Discarded, Event, Recast, TextDelta, ThoughtDelta
from hermes.agent.models import model as models
from hermes.agent.models.finish_reasons import normalize_reason
from hermes.message_content import INTERRUPTED
from hermes.reasoning import Piece, ReasoningSplitter

if TYPE_CHECKING:
    from hermes.agent.transcript import Record

SAVE_EVERY_S = 1.0
SAVE_SHARE = 20
"""The minimum pause after a save, as a multiple of the time that the save took. Saving therefore takes at
most one twentieth of the time, however slow the store is."""


class ModelAnswer(NamedTuple):
    """The answer of a model to one request."""

    text: str
    """The text as the model sent it. It is stored unchanged."""
    visible_text: str
    """The text without the reasoning at its beginning."""
    thought: str
    """Reasoning that the model sent in a separate field."""
    calls: list[dict[str, Any]]
    reason: str | None
    used: models.Used | None
    model: models.Model | None = None
    """The model that answered, if a model with fallbacks was asked and named it (`Answering`). None stands
    for the model that was asked."""
    stopped: bool = False

    @property
    def must_be_repeated(self) -> bool:
        """Whether to send the request once more: True if the answer is empty and its finish reason, such as a length
        limit, does not explain why."""
        is_empty = not (self.text.strip() or self.calls or self.stopped)
        return is_empty and normalize_reason(self.reason) is None

    def to_message(self) -> dict[str, Any] | None:
        """Return the fields of the message in which this answer is stored; None if the answer has nothing to
        store."""
        is_cut = normalize_reason(self.reason) is not None
        if not (self.text or self.calls or (self.thought and is_cut)):
            return None
        return {
            "content": self.text or None,
            "tool_calls": self.calls or None,
            "finish_reason": INTERRUPTED if self.stopped else self.reason,
            "reasoning": self.thought or None,
            "token_count": None if self.used is None else self.used.output_tokens or None,
        }


class StreamedAnswer:
    """The answer of a model to one request while it is being streamed."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._model: models.Model | None = None
        self._start()

    def _start(self) -> None:
        self._text: list[str] = []
        self._visible: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._used: models.Used | None = None
        self._splitter = ReasoningSplitter()

    @property
    def text(self) -> str:
        """The text of the answer so far, as the model sent it. It can contain reasoning in tags."""
        return "".join(self._text)

    @property
    def thought(self) -> str:
        """The reasoning so far that the model sent in a separate field."""
        return "".join(self._thought)

    def add(self, piece: models.Piece) -> list[Event]:
        """Add a piece of the stream. Return the events to send to surfaces."""
        match piece:
            case models.Text(text):
                self._text.append(text)
                return list(_make_deltas(self._splitter.add(text), self._visible))
            case models.Thought(text):
                self._thought.append(text)
                return [ThoughtDelta(text)]
            case models.CallPiece():
                _join(self._calls, piece)
            case models.Used():
                self._used = piece
            case models.Finished(reason):
                self._reason = reason
            case models.Retrying(why, seconds):
                self._start()
                return [Discarded(why, seconds)]
            case models.Answering(model):
                self._model = model
        return []

    def end(self) -> list[Event]:
        """Tell this object that the stream has ended. Return the events for the last text. This text was held back
        because it might have been the beginning of a reasoning tag."""
        return list(_make_deltas(self._splitter.end(), self._visible))

    def build(self, *, stopped: bool) -> ModelAnswer:
        """Return the whole answer. `stopped` says whether the turn was stopped during the stream. If so, the tool
        calls of the answer are left out, because they may be incomplete."""
        calls = (
            [] if stopped else [_format_call(number, call) for number, call in sorted(self._calls.items())]
        )
        visible = "".join(self._visible)
        return ModelAnswer(
            self.text, visible, self.thought, calls, self._reason, self._used, self._model, stopped
        )


def _make_deltas(pieces: Sequence[Piece | reasoning.Recast], visible: list[str]) -> Iterator[Event]:
    """Yield the events for pieces of an answer's text. Pieces that are not reasoning are also added to `visible`. If
    earlier pieces turn out to be reasoning, `visible` is emptied."""
    for piece in pieces:
        if isinstance(piece, reasoning.Recast):
            if visible:
                yield Recast(piece.text)
            elif piece.text:
                yield ThoughtDelta(piece.text)
            visible.clear()
        elif piece.is_reasoning:
            yield ThoughtDelta(piece.text)
        else:
            visible.append(piece.text)
            yield TextDelta(piece.text)


def _join(calls: dict[int, dict[str, str]], piece: models.CallPiece) -> None:
    call = calls.setdefault(piece.position, {"id": "", "name": "", "arguments": ""})
    call["id"] = piece.id or call["id"]
    call["name"] = piece.name or call["name"]
    call["arguments"] += piece.arguments


def _format_call(number: int, call: dict[str, str]) -> dict[str, Any]:
    """Return a tool call in the format of the chat completions API, which is also the stored format."""
    function = {"name": call["name"] or "unknown", "arguments": call["arguments"] or "{}"}
    return {"id": call["id"] or f"call_{number}", "type": "function", "function": function}


# ---------------------------------------------------------------- partial answers


class PartialSaver:
    """Saves the text of an answer while it is streamed, so that it survives the death of the process.

    The text is saved about once a second, always to the same message. In the end the whole answer replaces
    it. If the streaming fails or is cancelled, the text so far is stored as interrupted. If there is no text,
    because a retry has discarded it, the saved message is removed.
    """

    def __init__(self, record: Record, streamed: StreamedAnswer) -> None:
        self._record, self._streamed = record, streamed
        self._ended = asyncio.Event()
        self._saving: asyncio.Task[None]

    async def __aenter__(self) -> None:
        self._saving = asyncio.create_task(self._save_until_end())

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        await self._saving
        message = None if error is None else self._streamed.build(stopped=True).to_message()
        if message is not None:
            await self._record.say("assistant", **message)
        elif not self._streamed.text.strip():
            await self._record.drop_partial()

    async def _save_until_end(self) -> None:
        saved, pause_s = "", SAVE_EVERY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._ended.wait()
            if self._ended.is_set():
                return
            text, began = self._streamed.text, monotonic()
            if text == saved:
                continue
            if not text.strip():  # the text was discarded after a save
                await self._record.drop_partial()
            else:
                await self._record.keep_partial(content=text, reasoning=self._streamed.thought or None)
            saved, pause_s = text, max(SAVE_EVERY_S, SAVE_SHARE * (monotonic() - began))
