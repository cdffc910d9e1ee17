"""The turns of a trajectory, in the ShareGPT format that the reference documents for training data.

The speakers are `system`, `human`, `gpt` and `tool`. The system turn has the system prompt and the tools. A `gpt` turn
begins with its reasoning in `<think>` tags, which are empty without reasoning. Its tool calls are JSON objects in
`<tool_call>` tags. The results of the calls of one turn are one `tool` turn, with a `<tool_response>` for each.
Rewound messages are left out. `result_files` adds the other fields of a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hermes.export.message_text import is_visible, join_parts, list_answer_parts, list_calls, list_parts
from hermes.export.plan import Session
from hermes.reasoning import extract_reasoning
from hermes.text import decode_json

Turn = dict[str, str]
TOOLS = (
    "You may call functions. Their signatures are between <tools> tags. Put each call, a JSON object with `name` and"
    " `arguments`, between <tool_call> tags. The results are between <tool_response> tags."
)


def make_turns(sessions: Iterable[Session], schemas: Sequence[Mapping[str, Any]] = ()) -> list[Turn]:
    """Return the turns of a conversation in the ShareGPT format. `sessions` are the exported sessions of the
    conversation. `schemas` describe the tools of the model, for the system turn."""
    turns: list[Turn] = []
    results: list[str] = []
    is_first = True
    for session in sessions:
        if is_first and (text := _make_system(session.get("system_prompt"), schemas)):
            turns.append({"from": "system", "value": text})
        is_first = False
        for message in filter(is_visible, session["messages"]):
            if message["role"] == "tool":
                results.append(_make_response(message))
                continue
            if results:
                turns.append({"from": "tool", "value": "\n".join(results)})
                results = []
            turns.append(_make_turn(message))
    return [*turns, {"from": "tool", "value": "\n".join(results)}] if results else turns


def _make_system(prompt: object, schemas: Sequence[Mapping[str, Any]]) -> str:
    text = prompt if isinstance(prompt, str) else ""
    if not schemas:
        return text
    tools = json.dumps([schema.get("function", schema) for schema in schemas], ensure_ascii=False)
    return "\n\n".join(part for part in (text, f"{TOOLS}\n<tools>\n{tools}\n</tools>") if part)


def _make_turn(message: dict[str, Any]) -> Turn:
    if message["role"] != "assistant":
        speaker = "human" if message["role"] == "user" else "system"
        return {"from": speaker, "value": join_parts(list_parts(message.get("content")))}
    reasoning = extract_reasoning(message)
    parts = [f"<think>\n{reasoning}\n</think>" if reasoning else "<think>\n</think>"]
    parts += [text for text in (join_parts(list_answer_parts(message)),) if text]
    for call in list_calls(message):
        arguments = {} if call.arguments is None else call.arguments
        written = json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False, default=str)
        parts.append(f"<tool_call>\n{written}\n</tool_call>")
    return {"from": "gpt", "value": "\n".join(parts)}


def _make_response(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else join_parts(list_parts(content))
    parsed = decode_json(text)
    response = {
        "tool_call_id": message.get("tool_call_id") or "",
        "name": message.get("tool_name") or "",
        "content": text if parsed is None else parsed,
    }
    return f"<tool_response>\n{json.dumps(response, ensure_ascii=False, default=str)}\n</tool_response>"
