"""Shortens the tool output in a request. The store keeps the whole output, and the shortened text names the
id of its message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hermes.agent.context import tokens
from hermes.agent.context.boundaries import Row, find_last_prompt
from hermes.agent.tool import shorten_middle
from hermes.message_content import read_text

LONG_OUTPUT, BEGINNING = 200, 100
"""Old tool output with more than `LONG_OUTPUT` characters is replaced by a note, which quotes its first
`BEGINNING` characters."""
LONG_ARGUMENTS, ARGUMENT = 500, 200
"""If the arguments of an old tool call have more than `LONG_ARGUMENTS` characters, each argument is cut to
`ARGUMENT` characters."""
MOST_IF_PRESSED = 2_000
"""The length limit of new tool output, in characters. It applies only if the model would otherwise reject the
request."""
IMAGE = {"type": "text", "text": "[an image was here]"}


def shorten_rows(rows: Sequence[Row], before: int, *, pressed: bool = False) -> list[Row]:
    """Return the messages of a request. In messages with an id below `before`, tool calls and tool output are
    shortened.

    If `pressed` is True, the tool output of all later messages is shortened too. A message is shortened in the
    same way for every request. The beginning of the requests therefore does not change, and the provider's cache
    stays valid. The person's last message is not shortened.
    """
    made: list[Row] = []
    prompt = find_last_prompt(rows)
    for at, row in enumerate(rows):
        if row.get("id") is not None and row["id"] < before and at != prompt:
            made.append(_shorten_row(row))
        elif pressed and row.get("role") == "tool":
            made.append({**row, "content": shorten_middle(read_text(row.get("content")), MOST_IF_PRESSED)})
        else:
            made.append(row)
    return made


def _shorten_row(row: Row) -> Row:
    role, content = row.get("role"), row.get("content")
    if role == "tool":
        return {**row, "content": _shorten_output(row)}
    if tokens.find_images(content):
        places = set(tokens.find_images(content))
        row = {**row, "content": [IMAGE if at in places else part for at, part in enumerate(content or ())]}
    if role == "assistant" and isinstance(row.get("tool_calls"), list):
        return {**row, "tool_calls": [_shorten_call(call) for call in row["tool_calls"]]}
    return row


def _shorten_output(row: Row) -> Any:
    text = read_text(row.get("content"))
    pictures = tokens.find_images(row.get("content"))
    if len(text) <= LONG_OUTPUT:
        return f"{text}\n{IMAGE['text']}".strip() if pictures else row.get("content")
    beginning = " ".join(text[: BEGINNING * 2].split())[:BEGINNING]
    return (
        f"[{row.get('tool_name') or 'tool'}: {len(text):,} characters of output left out, message {row['id']};"
        f" it began: {beginning}]"
    )


def _shorten_call(call: Any) -> Any:
    """Return a call with the long strings in its arguments shortened. The arguments stay valid JSON, because
    models imitate the calls in their context."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    sent = function.get("arguments")
    if not isinstance(sent, str) or len(sent) <= LONG_ARGUMENTS:
        return call
    try:
        arguments = json.loads(sent)
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    cut = json.dumps({key: _cut(value) for key, value in arguments.items()}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": cut}}


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= ARGUMENT:
        return value
    return f"{text[:ARGUMENT]}… [{len(text) - ARGUMENT:,} characters left out]"
