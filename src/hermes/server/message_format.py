"""A common format for the messages of a request and the messages of the store, so that they can be compared.
Each answer is one text, as the client received it, even if the agent needed several steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hermes.agent.answer import BETWEEN
from hermes.reasoning import strip_reasoning
from hermes.server.api_errors import Refused, bad_request
from hermes.text import replace_surrogates

INSTRUCTING = ("system", "developer")
IMAGES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))
TEXTS = ("text", "input_text", "output_text")
NO_TOOLS = "client tools are not supported: the agent has its own tools and runs them itself"


class ChatMessage(NamedTuple):
    role: str
    """`user` or `assistant`."""
    content: Any
    """Text, or a list of parts in the format of the chat completions API."""


class RequestMessages(NamedTuple):
    """The messages of a request: the instructions, the history and the new message."""

    instructions: str | None
    """The system and developer messages, or None if there are none."""
    before: tuple[ChatMessage, ...]
    new: ChatMessage
    """The last message. Its role is `user`."""


def read_messages(
    messages: object, param: str, most: int, instructions: str | None = None
) -> RequestMessages:
    """Check the messages in the body of a request to the completions or the responses API, and return them. `param` is
    the name of their field in the body. Raise an API error if they are invalid or more than `most`."""
    if not isinstance(messages, list) or not messages:
        raise bad_request(f"{param} must be a list of messages that is not empty", param)
    if len(messages) > most:
        raise Refused(413, f"{param} has more than {most:,} messages", param=param, code="too_many_messages")
    texts = [instructions] if instructions else []
    chat_messages: list[ChatMessage] = []
    for number, message in enumerate(messages):
        chat_message = _read_message(message, f"{param}[{number}]")
        if chat_message.role in INSTRUCTING:
            texts.append(_require_text(chat_message.content, f"{param}[{number}]"))
        else:
            chat_messages.append(chat_message)
    if not chat_messages or chat_messages[-1].role != "user":
        raise bad_request("the last message must be the user's", param)
    if not chat_messages[-1].content or (
        isinstance(chat_messages[-1].content, str) and not chat_messages[-1].content.strip()
    ):
        raise bad_request("the last message is empty", param)
    return RequestMessages(BETWEEN.join(texts) or None, join_answers(chat_messages[:-1]), chat_messages[-1])


def join_answers(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Join consecutive assistant messages into one message, because the client received them as one answer. Messages
    without text are left out."""
    joined: list[ChatMessage] = []
    answer: list[Any] = []
    for message in messages:
        if message.role == "assistant":
            if message.content:
                answer.append(message.content)
            continue
        joined.extend(_join_texts(answer))
        answer = []
        joined.append(message)
    return (*joined, *_join_texts(answer))


def _join_texts(answer: list[Any]) -> list[ChatMessage]:
    """Return the texts of an answer joined to one text. They are joined in one call, because appending them one by one
    would take quadratic time."""
    if not answer:
        return []
    return [ChatMessage("assistant", answer[0] if len(answer) == 1 else BETWEEN.join(map(str, answer)))]


def convert_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[ChatMessage, ...]:
    """Return the messages in stored rows in the form in which the client sent and received them."""
    return join_answers(
        ChatMessage(row["role"], strip_reasoning(row["content"], row["role"]))
        for row in rows
        if row["role"] in ("user", "assistant")
    )


def encode_canonically(messages: Sequence[ChatMessage]) -> bytes:
    """Return messages as bytes, such that equal messages give equal bytes."""
    return json.dumps([(message.role, message.content) for message in messages], sort_keys=True).encode()


def _read_message(message: object, where: str) -> ChatMessage:
    if not isinstance(message, Mapping):
        raise bad_request(f"{where} must be a message", where)
    if message.get("type", "message") != "message":
        raise bad_request(f"{where}: items of type {message['type']!r} are not supported", where)
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise Refused(400, f"{where}: {NO_TOOLS}", param=where, code="unsupported")
    if role not in ("user", "assistant", *INSTRUCTING):
        raise bad_request(f"{where}.role must be system, developer, user or assistant, not {role!r}", where)
    content = _read_content(message.get("content"), f"{where}.content", images=role == "user")
    if content is None and role != "assistant":
        raise bad_request(f"{where}.content is missing", where)
    return ChatMessage(str(role), strip_reasoning(content or "", role))


def _read_content(content: object, where: str, *, images: bool) -> Any:
    """Return the content of a message in a request: a plain text, or a list of parts if it has pictures."""
    if content is None:
        return None
    if isinstance(content, str):
        return replace_surrogates(content)
    if not isinstance(content, list):
        raise bad_request(f"{where} must be text or a list of parts", where)
    parts = [_read_part(part, f"{where}[{number}]", images) for number, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return BETWEEN.join(part["text"] for part in parts)
    return parts


def _read_part(part: object, where: str, images: bool) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": replace_surrogates(part["text"])}
    if isinstance(part, Mapping) and kind in ("image_url", "input_image") and images:
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        if isinstance(url, str) and url.startswith((*IMAGES, "https://", "http://")):
            return {"type": "image_url", "image_url": {"url": replace_surrogates(url)}}
        raise bad_request(
            f"{where}: a picture is a URL, or a data URL with a PNG, JPEG, GIF or WebP as base64", where
        )
    raise bad_request(f"{where}: parts of type {kind!r} are not supported here", where)


def _require_text(content: Any, where: str) -> str:
    if not isinstance(content, str):
        raise bad_request(f"{where}: the content must be text only", where)
    return content
