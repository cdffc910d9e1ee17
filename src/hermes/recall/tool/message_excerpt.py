"""Excerpts of single messages, cut while they are read.

Messages of people and of the agent are shown at greater length than tool calls and tool output. If content is
structured, only its text is shown. Attachments are not fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hermes.message_content import ToolCall, list_tool_calls, read_text
from hermes.reasoning import split_reasoning
from hermes.recall.snippets.excerpts import Excerpt, make_excerpt, narrow_excerpt
from hermes.store.content import decode, from_json, to_json
from hermes.store.engine import Row

ROW = "SELECT id, role, content, content_kind, tool_calls, tool_name, timestamp FROM messages"

OVERHEAD = 100
"""Approximate number of characters that a message takes in addition to its text."""
FIRST_LINES = 8
"""Number of lines of a tool's output that are shown."""
MOST_CALLS = 4
LONGEST_CALL = 160
MATCH_SHARE = 4
"""Weight of a match when it shares the available space with its neighbours."""


class Bounds(NamedTuple):
    """The maximum number of characters shown of a message: for a message of a person or the agent, for tool output, and
    for the message that a search found."""

    speech: int
    tool: int
    match: int
    call: int = LONGEST_CALL
    """Maximum number of characters of a tool call's arguments."""
    calls: int = MOST_CALLS
    """Maximum number of tool calls shown for a message."""


class MessageExcerpt(NamedTuple):
    """A message of the store, cut to the maximum number of characters that `Bounds` allows."""

    id: int
    role: str
    tool: str | None
    at: object
    text: Excerpt
    calls: Excerpt | None
    reasoning: int = 0
    """Length of the reasoning before the answer, in characters. The reasoning is not part of the text."""

    @property
    def length(self) -> int:
        return OVERHEAD + len(self.text.piece) + (len(self.calls.piece) if self.calls else 0)


def make_message_excerpt(
    row: Row, bounds: Bounds, clues: Sequence[str] | None = None, skip: int = 0
) -> MessageExcerpt:
    """Make an excerpt from a row with the columns of `ROW`.

    Pass `clues` only for the match, which is the message that a search found. `clues` are pieces of its text.
    The excerpt is cut so that the first clue that occurs stays visible. `skip` is the number of characters to
    leave out at the beginning of the match.
    """
    message_id, role, stored, kind, calls, tool, at = row
    text, reasoning = read_text(decode(stored, kind)), 0
    if role == "assistant":
        text, reasoning = _strip_reasoning(text, clues or ())
    if clues is not None:
        places = [text.find(clue) for clue in clues if clue]
        focus = next((place for place in places if place >= 0), 0)
        rest = Excerpt(text[skip:], before=min(skip, len(text)), focus=focus, share=MATCH_SHARE)
        cut = narrow_excerpt(rest, bounds.match)
    elif role == "tool":
        cut = make_excerpt(text, _find_first_lines(text, bounds.tool))
    else:
        cut = make_excerpt(text, bounds.speech)
    called = _summarise_calls(calls, bounds) if calls else None
    return MessageExcerpt(message_id, str(role), tool, at, cut, called, reasoning)


def _strip_reasoning(text: str, clues: Sequence[str]) -> tuple[str, int]:
    """Return the answer in a message of the agent, without the model's reasoning before it, and the length of the
    reasoning.

    Return the whole text and 0 if the message has no answer, or if the clues occur only in the reasoning.
    """
    reasoning, answer = split_reasoning(text)
    sought = [clue for clue in clues if clue and clue in reasoning]
    if not answer.strip() or (sought and not any(clue in answer for clue in clues if clue)):
        return text, 0
    return answer, len(reasoning)


def _find_first_lines(text: str, most: int) -> int:
    end = -1
    for _ in range(FIRST_LINES):
        end = text.find("\n", end + 1, most)
        if end < 0:
            return most
    return end


def _summarise_calls(stored: object, bounds: Bounds) -> Excerpt:
    """Return a short form of tool calls: their names and the beginning of their arguments."""
    found = from_json(stored, stored) if isinstance(stored, str) else stored
    calls = list_tool_calls(found)
    lines = [_format_call(call, bounds.call) for call in calls[: bounds.calls]]
    if len(calls) > bounds.calls:
        lines.append(f"and {len(calls) - bounds.calls} more")
    return Excerpt("\n".join(lines))


def _format_call(call: ToolCall, longest: int) -> str:
    if not call.name:
        return _shorten(str(call.arguments), longest)
    arguments = "" if call.arguments is None else call.arguments
    text = arguments if isinstance(arguments, str) else to_json(arguments)
    return f"{call.name[:LONGEST_CALL]}({_shorten(text, longest)})"


def _shorten(text: str, longest: int) -> str:
    cut = make_excerpt(text, longest)
    return f"{cut.piece}… [{cut.after:,} characters left out]" if cut.after else text
