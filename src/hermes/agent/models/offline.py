"""The offline model: a rule-based model without weights and network. It searches stored sessions and runs
tools.

It is deterministic. It states that it is not a language model, and it answers with the output of its tools.
With this model, demonstrations and tests can run every path of a turn without a network. Its commands:

    list | sessions                    list the latest conversations
    search X, find X, any question     search the conversations
    run COMMAND, $ COMMAND             run a command in the terminal
    read FILE; write FILE: TEXT        read or write a file
    remember X                         add an entry to the memory
    todo A, B, C                       set the todo list
    help, or anything else             describe the model and its commands

If a request has no tools, as for a summary or a title, the model extracts sentences and words from its input.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from hermes.agent.models.model import CallPiece, Finished, Message, Piece, Request, Text, Used
from hermes.agent.models.replay import NOTE
from hermes.message_content import read_text
from hermes.recall.ranking import question_words

__all__ = ["OfflineModel"]

WHAT_IT_IS = """I am the offline model: a small program, not a language model. I cannot reason or write for you. I can

- list your conversations (`list`) and search them (`search retry budget`, or just ask);
- run a command (`run git status`), read a file (`read notes.txt`), write one (`write notes.txt: hello`);
- remember something (`remember I prefer tabs`) and keep a list (`todo buy milk, call Ann`).

`hermes setup` connects a real model."""

NOTHING = (
    "Nothing about that in your other conversations. (I am not a language model: `help` says what I can do.)"
)

SHOWN, QUOTED, SUMMARY_LINES = 5, 240, 40
"""The maximum number of search results in an answer, of characters quoted from a text, and of lines in a
summary."""
FREE = Used(input_tokens=0, output_tokens=0, cost_usd=0.0)


class Intent(NamedTuple):
    pattern: re.Pattern[str]
    tool: str
    arguments: Callable[[re.Match[str]], dict[str, Any]]


def _make_intent(pattern: str, tool: str, arguments: Callable[[re.Match[str]], dict[str, Any]]) -> Intent:
    return Intent(re.compile(pattern, re.IGNORECASE | re.DOTALL), tool, arguments)


INTENTS = (
    _make_intent(r"(?:run|\$|!)\s+(.+)", "terminal", lambda prompt: {"command": prompt[1].strip(" `")}),
    _make_intent(r"(?:read|open|cat)\s+(\S+)", "read_file", lambda prompt: {"path": prompt[1].strip("`")}),
    _make_intent(
        r"write\s+(\S+?):?\s*[:\n]\s*(.+)",
        "write_file",
        lambda prompt: {"path": prompt[1], "content": prompt[2]},
    ),
    _make_intent(
        r"remember(?: that)?:?\s+(.+)",
        "memory",
        lambda prompt: {"action": "add", "target": "user", "content": prompt[1]},
    ),
    _make_intent(r"todo:?\s+(.+)", "todo", lambda prompt: {"items": _parse_todos(prompt[1])}),
    _make_intent(
        r"(?:list|sessions|list (?:my )?(?:sessions|conversations))[.!?]?", "session_search", lambda _: {}
    ),
    _make_intent(
        r"(?:search|find|recall|look for)(?: for)?:?\s+(.+)",
        "session_search",
        lambda prompt: {"query": prompt[1]},
    ),
)
"""The commands, tried in order. The whole input must match a pattern."""


class OfflineModel:
    name, provider, base_url = "offline", "offline", None
    takes_pictures = False

    def __init__(self, context_window: int = 128_000) -> None:
        self.context_window = context_window

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        call = _choose_call(request)
        if call is not None:
            name, arguments = call
            yield CallPiece(
                0, f"offline_{len(request.messages)}", name, json.dumps(arguments, ensure_ascii=False)
            )
            yield FREE
            yield Finished("tool_calls")
            return
        for piece in re.findall(r"\s*\S+|\s+", _make_answer(request)):
            yield Text(piece)
        yield FREE
        yield Finished("stop")

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def _choose_call(request: Request) -> tuple[str, dict[str, Any]] | None:
    """Return the tool call with which the model responds to the last message of the request, as (tool name,
    arguments). Return None if the last message is not by a person, or if no tool fits it."""
    tools = {tool["function"]["name"] for tool in request.tools}
    last = request.messages[-1] if request.messages else {}
    if last.get("role") != "user":
        return None
    whole, prompt = read_text(last.get("content")).strip(), _extract_request(last)
    for intent in INTENTS:
        found = intent.pattern.fullmatch(whole) or intent.pattern.fullmatch(prompt)
        if found and intent.tool in tools:
            return intent.tool, intent.arguments(found)
    if "session_search" in tools and _is_about_something(prompt):
        return "session_search", {"query": prompt}
    return None


def _extract_request(message: Message) -> str:
    """Return the last paragraph that the person wrote. The message can begin with notes, and with earlier
    messages that were interrupted before they were answered."""
    parts = [part.strip() for part in read_text(message.get("content")).split("\n\n")]
    spoken = [part for part in parts if part and not part.startswith(NOTE.strip())]
    return spoken[-1] if spoken else ""


def _is_about_something(prompt: str) -> bool:
    if prompt.lower().strip(" .!?") in {
        "",
        "help",
        "hi",
        "hello",
        "hey",
        "thanks",
        "thank you",
        "ok",
        "who are you",
    }:
        return False
    return bool(question_words.read_question(prompt).terms)


def _make_answer(request: Request) -> str:
    last = request.messages[-1] if request.messages else {}
    if last.get("role") == "tool":
        return _report(str(last.get("content") or ""))
    if not request.tools and len(request.messages) > 0:
        return _make_digest(read_text(last.get("content")))
    return WHAT_IT_IS


def _report(output: str) -> str:
    """Return the model's answer to the output of a tool. If the output is a list of search results, the answer lists
    the best match of each conversation; otherwise it quotes the output."""
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("results"), list):
        return f"```\n{output.strip()}\n```"
    if not found["results"]:
        return NOTHING
    lines = ["From your conversations:"]
    for result in found["results"][:SHOWN]:
        what = " ".join(str(result.get("snippet") or result.get("preview") or "").split())
        marked = re.sub(">>>(.*?)<<<", r"**\1**", what)[:QUOTED]
        lines.append(
            f"- *{result.get('title') or result.get('session_id')}*, {str(result.get('last_active'))[:10]}: {marked}"
        )
    return "\n".join(lines)


def _make_digest(text: str) -> str:
    """Return the first sentence of each line of `text`, for at most `SUMMARY_LINES` lines. The model gives this as a
    summary."""
    sentences = []
    for paragraph in text.splitlines():
        first = re.split(r"(?<=[.!?。！？])\s+", paragraph.strip(), maxsplit=1)[0]
        if first:
            sentences.append(f"- {first[:QUOTED]}")
    return "\n".join(sentences[:SUMMARY_LINES])


def _parse_todos(text: str) -> list[dict[str, str]]:
    items = [item.strip() for item in re.split(r"[,;\n]", text) if item.strip()]
    return [{"id": str(number), "content": item, "status": "pending"} for number, item in enumerate(items, 1)]
