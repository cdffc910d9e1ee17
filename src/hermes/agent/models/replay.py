"""Converts stored messages into a request that every provider accepts. Pure functions; stored rows are never
changed.

Invariants, for any rows and after a crash at any point:

- The system prompt comes first, then a person's message, then alternating turns. No message is empty.
- Every tool call has a unique id, a valid name and valid arguments. It is answered exactly once, directly
  after the message with the call, in the order of the calls. A call without a result is answered with
  UNKNOWN.
- Results without a call and markers of other programs (`session_meta`) are left out.
- All other text is kept unchanged and in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hermes.agent.models.model import Message
from hermes.message_content import read_text
from hermes.text import replace_surrogates

UNKNOWN = "[no result recorded; effect unknown]"
NO_OUTPUT = "(no output)"
CONTINUED = "[the conversation goes on]"
"""The text of the person's message that is put first if the stored messages begin with an answer."""
NOTE = "[note] "
"""The prefix of a text in the history that no person wrote, for example a summary."""

_NAME = re.compile(r"[^a-zA-Z0-9_-]")
LONGEST_NAME = 64


def replay(rows: Sequence[dict[str, Any]], system_prompt: str | None = None) -> list[Message]:
    """Return the messages of a request, made from stored rows and the system prompt."""
    made: list[Message] = []
    taken: set[int] = set()
    for at, row in enumerate(rows):
        role = row.get("role")
        if role == "assistant":
            _add_answer(made, rows, at, taken)
        elif role == "user":
            _add_message(made, row.get("content"))
        elif role == "system":
            text = read_text(row.get("content"))
            _add_message(made, f"{NOTE}{text}" if text.strip() else "")
    if made and made[0]["role"] != "user":
        made.insert(0, {"role": "user", "content": CONTINUED})
    if system_prompt and system_prompt.strip():
        made.insert(0, {"role": "system", "content": replace_surrogates(system_prompt)})
    return made


def _find_result(rows: Sequence[dict[str, Any]], at: int, call_id: str, taken: set[int]) -> str:
    """Return the stored result of the tool call `call_id`, which is in the message at index `at` of `rows`.
    Return `UNKNOWN` if there is no result.

    `taken` holds the indexes of the results that are already used, because each result answers one call. The
    index of the result found is added to it.
    """
    for behind in range(at + 1, len(rows)):
        row = rows[behind]
        if row.get("role") == "tool" and row.get("tool_call_id") == call_id and behind not in taken:
            taken.add(behind)
            return read_text(row.get("content")) or NO_OUTPUT
        if row.get("role") == "assistant" and any(_get_id(call) == call_id for call in _list_calls(row)):
            break  # a later call with the same id has its own result
    return UNKNOWN


def _add_message(made: list[Message], content: object) -> None:
    """Add a person's message to `made`, the messages of a request. If the last message of `made` is also by a person,
    the two are joined, because some providers reject two such messages in a row."""
    if not _has_content(content):
        return
    text = replace_surrogates(content) if isinstance(content, str) else content
    last = made[-1] if made else None
    if last is None or last["role"] != "user":
        made.append({"role": "user", "content": text})
    elif isinstance(last["content"], str) and isinstance(text, str):
        last["content"] = f"{last['content']}\n\n{text}"
    else:
        last["content"] = [*_list_parts(last["content"]), *_list_parts(text)]


def _add_answer(made: list[Message], rows: Sequence[dict[str, Any]], at: int, taken: set[int]) -> None:
    text = read_text(rows[at].get("content")).strip()
    calls = [(_get_id(call), _format_call(call)) for call in _list_calls(rows[at])]
    if not calls:
        if text and made and made[-1]["role"] == "assistant":
            made[-1]["content"] = f"{made[-1]['content']}\n\n{text}"
        elif text:
            made.append({"role": "assistant", "content": text})
        return
    if made and made[-1]["role"] == "assistant":  # the preceding text belongs to the same turn
        text = "\n\n".join(filter(None, (made.pop()["content"], text)))
    used = {sent_call["id"] for message in made for sent_call in message.get("tool_calls", ())}
    answers: list[Message] = []
    for number, (call_id, sent) in enumerate(calls):
        output = _find_result(rows, at, call_id, taken) if call_id is not None else UNKNOWN
        sent["id"] = _choose_free_id(call_id or f"call_{len(made)}_{number}", used)
        used.add(sent["id"])
        answers.append({"role": "tool", "tool_call_id": sent["id"], "content": output})
    made.append({"role": "assistant", "content": text or None, "tool_calls": [sent for _, sent in calls]})
    made += answers


def _list_calls(row: dict[str, Any]) -> list[dict[str, Any]]:
    calls = row.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _get_id(call: dict[str, Any]) -> str | None:
    call_id = call.get("id")
    return call_id if isinstance(call_id, str) and call_id else None


def _format_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    name = _NAME.sub("_", str(inner.get("name") or "unknown"))[:LONGEST_NAME]
    return {"id": "", "type": "function", "function": {"name": name, "arguments": _format_arguments(inner)}}


def _format_arguments(inner: dict[str, Any]) -> str:
    """Return the arguments of a stored tool call as the text of a JSON object. Arguments in any other form are
    replaced by a JSON object. `inner` is the part of the call with the keys `name` and `arguments`."""
    arguments = inner.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            read = None
        if isinstance(read, dict):
            return replace_surrogates(arguments) if arguments.strip() else "{}"
        return json.dumps({"arguments": replace_surrogates(arguments)}, ensure_ascii=False)
    return json.dumps(arguments if isinstance(arguments, dict) else {}, ensure_ascii=False, default=str)


def _choose_free_id(wish: str, used: Iterable[str]) -> str:
    number, chosen = 1, wish
    while chosen in used:
        number += 1
        chosen = f"{wish}_{number}"
    return chosen


def _has_content(content: object) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return isinstance(content, list) and bool(content)


def _list_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
