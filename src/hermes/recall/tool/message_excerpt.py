"""One message of an earlier conversation, cut short as it is read.

What people and the agent said is shown longer than what tools were given and gave back. Of structured content the text
is shown; attachments are not fetched.
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
"""What a message takes beside its text, about."""
FIRST_LINES = 8
"""Lines of a tool's output that tell what it was."""
MOST_CALLS = 4
LONGEST_CALL = 160
MATCH_SHARE = 4
"""How much more room a match gets than its neighbours."""


class Bounds(NamedTuple):
    """How many characters of a message are kept: of what people and the agent say, of tools, of the match itself."""

    speech: int
    tool: int
    match: int
    call: int = LONGEST_CALL
    """Characters of the arguments of a tool call."""
    calls: int = MOST_CALLS
    """Tool calls of one message."""


class MessageExcerpt(NamedTuple):
    """One message, cut as its bounds say."""

    id: int
    role: str
    tool: str | None
    at: object
    text: Excerpt
    calls: Excerpt | None
    reasoning: int = 0
    """Characters of reasoning before an answer, which are left out of the text."""

    @property
    def length(self) -> int:
        return OVERHEAD + len(self.text.piece) + (len(self.calls.piece) if self.calls else 0)


def make_message_excerpt(
    row: Row, bounds: Bounds, clues: Sequence[str] | None = None, skip: int = 0
) -> MessageExcerpt:
    """A message from its `ROW`. With clues it is the match: the first of them that is in the text stays in sight.

    `skip` leaves out so many characters at its beginning.
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
    """The answer and the length of its reasoning. If there is no answer, or a clue is only in the reasoning, all."""
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
    """Tool calls in short: names and the beginning of their arguments."""
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
