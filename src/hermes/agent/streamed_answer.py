"""Assembles the answer of a model to one request from the pieces of its stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hermes import reasoning
from hermes.agent.events import Discarded, Event, Recast, TextDelta, ThoughtDelta
from hermes.agent.models import model as models
from hermes.agent.models.finish_reasons import normalize_reason
from hermes.message_content import INTERRUPTED
from hermes.reasoning import Piece, ReasoningSplitter


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
    stopped: bool = False

    @property
    def must_be_repeated(self) -> bool:
        """Whether the answer is empty and the model reported no special finish reason."""
        is_empty = not (self.text.strip() or self.calls or self.stopped)
        return is_empty and normalize_reason(self.reason) is None

    def to_message(self) -> dict[str, Any] | None:
        """Return the fields of the message to store; None if there is nothing to store."""
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
    """An answer that is being streamed."""

    def __init__(self) -> None:
        self._reason: str | None = None
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
        """The text so far, as the model sent it."""
        return "".join(self._text)

    @property
    def thought(self) -> str:
        """The reasoning so far, if the model sends it in a separate field."""
        return "".join(self._thought)

    def add(self, piece: models.Piece) -> list[Event]:
        """Add a piece of the stream. Return the events for surfaces."""
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
        return []

    def end(self) -> list[Event]:
        """Mark the end of the stream. Return the events for text that was held back."""
        return list(_make_deltas(self._splitter.end(), self._visible))

    def build(self, *, stopped: bool) -> ModelAnswer:
        """Return the whole answer. The calls of a stopped answer are left out, because they may be cut off."""
        calls = (
            [] if stopped else [_format_call(number, call) for number, call in sorted(self._calls.items())]
        )
        visible = "".join(self._visible)
        return ModelAnswer(self.text, visible, self.thought, calls, self._reason, self._used, stopped)


def _make_deltas(pieces: Sequence[Piece | reasoning.Recast], visible: list[str]) -> Iterator[Event]:
    """Yield the events for pieces of the text. Pieces that are not reasoning are also added to `visible`."""
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
