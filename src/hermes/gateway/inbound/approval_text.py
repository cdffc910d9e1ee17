"""The text of an approval question: the whole command, the reason, and how to answer.

Invariant: a person can approve only an action that was shown completely. The command and the diff are in code
blocks, and their content cannot close the block. Invisible characters are spelled out. A long text is split
into several blocks, which together contain exactly the text. An action that needs more than `MOST_PARTS`
messages cannot be approved in a chat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hermes import clock
from hermes.agent.approvals.request import ApprovalRequest, Scope
from hermes.gateway.adapter import Choice
from hermes.gateway.outbound.markdown_format import escape_line, format_code
from hermes.insights.number_format import format_duration
from hermes.text import make_visible

Measure = Callable[[str], int]

MOST_PARTS = 8
"""Maximum number of messages for a command and its diff."""
OUTCOME_ROOM = 200
"""Characters that are left free in the last message, because the outcome is added there later."""
SHORTEST_MESSAGE = 1000
"""If the maximum message length of a platform is below this, no question can be asked there."""
LONGEST_REASON = 400
LONGEST_PREFIX = 80

_BACKTICKS = re.compile("`+")


def fence_code(text: str, language: str = "") -> str:
    """Return a Markdown code block whose fence is longer than any run of backticks in the text."""
    mark = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{mark}{language}\n{text}\n{mark}"


def split_code(text: str, longest: int, measure: Measure = len, language: str = "") -> list[str]:
    """Split a text into chunks whose concatenation is the text. The code block of each chunk is at most
    `longest` long, by `measure`."""

    def fits(start: int, end: int) -> bool:
        return measure(fence_code(text[start:end], language)) <= longest

    chunks: list[str] = []
    start = 0
    while start < len(text) or not chunks:
        if fits(start, len(text)):
            chunks.append(text[start:])
            break
        good, bad = start + 1, min(len(text), start + longest) + 1
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(start, middle) else (good, middle)
        end = _find_chunk_end(text, start, good)
        chunks.append(text[start:end])
        start = end
    return chunks


def _find_chunk_end(text: str, start: int, end: int) -> int:
    """Return the position in `text` at which the chunk that begins at `start` should end. The result is at most
    `end`. It is directly after the last line break in the second half of the range. Without a line break there, it
    is directly after the last space there. Without a space, it is `end`."""
    for gap in ("\n", " "):
        position = text.rfind(gap, start + (end - start) // 2, end)
        if position >= 0:
            return position + 1
    return end


def offered_scopes(request: ApprovalRequest) -> dict[str, Scope]:
    """Return the lasting permissions that the person can grant for a request. The keys are the words that can
    follow `/approve`: `always`, and `like` for all commands with the same prefix."""
    scopes: dict[str, Scope] = {}
    lasting = next((scope for scope in request.scopes if scope is not Scope.PREFIX), None)
    if lasting is not None:
        scopes["always"] = lasting
    if Scope.PREFIX in request.scopes and _is_displayed_exactly(request.prefix):
        scopes["like"] = Scope.PREFIX
    return scopes


def _is_displayed_exactly(prefix: str) -> bool:
    """Return whether a chat shows `prefix`, the beginning of a command, completely and unchanged when it is
    formatted as inline code."""
    return (
        0 < len(prefix) <= LONGEST_PREFIX
        and prefix == make_visible(prefix) == " ".join(prefix.split())
        and "`" not in prefix
    )


def make_choices(name: str, request: ApprovalRequest) -> tuple[Choice, ...]:
    """Return the possible answers as buttons. Each button sends a command that could also be typed."""
    labels = {
        Scope.COMMAND: "✓ Always this command",
        Scope.EDITS: "✓ Always edits",
        Scope.PREFIX: "✓ Always like this",
    }
    lasting = (
        Choice(labels[scope], f"/approve {name} {word}") for word, scope in offered_scopes(request).items()
    )
    return (Choice("✓ Once", f"/approve {name}"), *lasting, Choice("✗ No", f"/deny {name}"))


def format_question(
    name: str, request: ApprovalRequest, seconds: float, longest: int, measure: Measure = len
) -> list[str] | None:
    """Return the texts of the messages that ask for approval of `request`. `name` is the name of the request, and
    `seconds` the time limit for the answer. Each text is at most `longest` long, by `measure`. The last one
    explains the possible answers. Return None if the request is too long to be shown in a chat."""
    if longest < SHORTEST_MESSAGE:
        return None
    blocks = [(make_visible(request.subject), "")]
    if request.diff:
        blocks.append((make_visible(request.diff), "diff"))
    head = f"❓ **May I do this?** {format_code(name)}"
    tail = "\n".join(_format_tail(name, request, seconds))
    together = "\n\n".join([head, *(fence_code(*block) for block in blocks), tail])
    room = longest - OUTCOME_ROOM
    if measure(together) <= room:
        return [together]
    chunks = [
        (chunk, language)
        for text, language in blocks
        for chunk in split_code(text, longest - OUTCOME_ROOM, measure, language)
    ]
    last = f"{head}\n\nThe {len(chunks)} messages above show all of it.\n\n{tail}"
    if len(chunks) > MOST_PARTS or measure(last) > room:
        return None
    labels = (f"{format_code(name)} part {number} of {len(chunks)}" for number in range(1, len(chunks) + 1))
    return [
        *(f"{label}\n\n{fence_code(*chunk)}" for label, chunk in zip(labels, chunks, strict=True)),
        last,
    ]


def _format_tail(name: str, request: ApprovalRequest, seconds: float) -> Iterator[str]:
    if any(text != make_visible(text) for text in (request.subject, request.diff)):
        yield "⚠ It contains invisible characters, which are shown as ⟨U+…⟩."
    if request.reason:
        yield f"Why I ask: {escape_line(request.reason, LONGEST_REASON)}"
    yield f"- {format_code(f'/approve {name}')} once"
    where = f", in {format_code(request.workspace)}" if request.workspace else ""
    meanings = {
        Scope.COMMAND: f"this command from now on{where}",
        Scope.EDITS: f"all edits from now on{where}",
        Scope.PREFIX: f"every command that begins with `{request.prefix}` from now on{where}",
    }
    for word, scope in offered_scopes(request).items():
        yield f"- {format_code(f'/approve {name} {word}')} {meanings[scope]}"
    yield f"- {format_code(f'/deny {name}')} no; the agent receives the text after the command"
    yield f"Without an answer within {format_limit(seconds)}, it is refused."


def format_limit(seconds: float) -> str:
    """Format a time limit as `10 minutes` or `30 seconds`."""
    minutes = seconds / clock.MINUTE
    if minutes >= 1:
        return f"{minutes:g} minute{'' if minutes == 1 else 's'}"
    return format_duration(seconds)
