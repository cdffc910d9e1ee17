"""HTML: one page for any number of conversations, that needs nothing but itself.

It is written as it goes: the list of conversations first, then one after the other. The page asks for nothing from any
network, and its policy says that nothing may: only its own style and script, recognised by their hashes, are obeyed.
Without its script it is a long document; with it, a list, a conversation, and a search. Every message has an address
(`#msg-17`). Reasoning, tool calls and results are folded away; the system prompt and what a rewind took back are left
out: JSONL has them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from hermes import clock
from hermes.export.export_recognition import HTML_MARK
from hermes.export.html_text import rendered, text
from hermes.export.message_text import (
    Call,
    Part,
    answer_parts,
    calls_of,
    indented,
    is_said,
    role_of,
    text_of_parts,
    when,
)
from hermes.export.plan import Conversation, Load, Session
from hermes.reasoning import reasoning_in
from hermes.text import as_text

FOLDED_FROM = 100_000
"""Characters from which a message is folded: laying out more at once makes a browser slow."""

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{mark}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src '{style}'; \
script-src '{script}'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<aside>
<search><input type="search" id="query" placeholder="Search titles and text ( / )" autocomplete="off" \
aria-label="Search titles and text"><span id="found" role="status"></span>\
<button id="previous" hidden aria-label="Previous match">↑</button>\
<button id="next" hidden aria-label="Next match">↓</button></search>
<details id="list" open><summary>{counted}</summary>
<nav><ol>
"""
ENTRY = """<li><a href="#c{number}"><span class="title">{title}</span><small>{told}</small></a></li>
"""
MAIN = """</ol></nav></details>
</aside>
<main>
"""
MESSAGE = """<section class="{kind}" id="{anchor}"><h2><a href="#{anchor}">{role}</a>\
<time datetime="{at}">{when}</time></h2>"""
TAIL = """</main>
<script>{js}</script>
</body>
</html>
"""


def write(conversations: Sequence[Conversation], load: Load) -> Iterator[str]:
    css, js = _asset("page.css"), _asset("page.js")
    counted = _counted(len(conversations), "conversation")
    title = conversations[0].heading if len(conversations) == 1 else counted
    yield HEAD.format(
        mark=HTML_MARK, title=text(title), css=css, style=_hash(css), script=_hash(js), counted=counted
    )
    for number, conversation in enumerate(conversations, 1):
        yield _entry(number, conversation)
    yield MAIN
    for number, conversation in enumerate(conversations, 1):
        yield from _article(number, conversation, load)
    yield TAIL.format(js=js)


def _entry(number: int, conversation: Conversation) -> str:
    told = [clock.day(conversation.last_active), text(conversation.segments[0].source)]
    if conversation.messages:
        told.append(_counted(conversation.messages, "message"))
    return ENTRY.format(number=number, title=text(conversation.heading), told=" · ".join(told))


def _article(number: int, conversation: Conversation, load: Load) -> Iterator[str]:
    yield f'<article id="c{number}">\n<header><h1>{text(conversation.heading)}</h1>\n'
    told = False
    for segment in conversation.segments:
        session = load(segment.id)
        if session is None:
            continue
        yield _continued(session) if told else f"<dl>{_facts(conversation, session)}</dl></header>\n"
        for message in session["messages"]:
            if is_said(message):
                yield _message(message)
        told = True
    yield "</article>\n" if told else "</header></article>\n"


def _facts(conversation: Conversation, session: Session) -> str:
    parent = session.get("parent_session_id")
    origin = f"{parent} ({session.get('relation') or 'child'})" if parent else None
    facts = [
        ("Source", session.get("source")),
        ("Model", session.get("model")),
        ("Started", when(conversation.started_at)),
        ("Last active", when(conversation.last_active)),
        ("Workspace", session.get("workspace")),
        ("Tags", ", ".join(session.get("tags") or [])),
        ("Came out of", origin),
        ("Session", ", ".join(as_text(one.id) for one in conversation.segments)),
    ]
    return "".join(f"<div><dt>{name}</dt><dd>{text(told)}</dd></div>" for name, told in facts if told)


def _continued(session: Session) -> str:
    return f'<p class="continued">Continued in {text(session["id"])} · {when(session["started_at"])}</p>\n'


def _message(message: dict[str, Any]) -> str:
    role, anchor = message["role"], f"msg-{text(message['id'])}"
    kind = role if role in ("user", "assistant", "tool") else "system"
    at = message["timestamp"]
    told = [
        MESSAGE.format(kind=kind, anchor=anchor, role=text(role_of(message)), at=clock.iso(at), when=when(at))
    ]
    reasoning = reasoning_in(message)
    if reasoning:
        told.append(_folded("Reasoning", rendered(reasoning), "reasoning"))
    parts = answer_parts(message)
    told += [_result(message, parts)] if role == "tool" else map(_part, parts)
    told += map(_call, calls_of(message))
    return "".join([*told, "</section>\n"])


def _part(part: Part) -> str:
    if part.kind == "image":
        return f'<img src="{text(part.text)}" alt="image" loading="lazy">'
    if part.kind == "other":
        return _folded("Attachment", f"<pre>{text(part.text)}</pre>", "call")
    if len(part.text) >= FOLDED_FROM:
        return _folded(_counted(len(part.text), "character"), f"<pre>{text(part.text)}</pre>", "long")
    return rendered(part.text)


def _result(message: dict[str, Any], parts: list[Part]) -> str:
    said = text_of_parts(parts)
    name = text(message.get("tool_name") or "result")
    return _folded(f"{name} · {_counted(len(said), 'character')}", f"<pre>{text(said)}</pre>", "call")


def _call(call: Call) -> str:
    return _folded(f"Calls {text(call.name)}", f"<pre>{text(indented(call.arguments))}</pre>", "call")


def _folded(summary: str, inside: str, kind: str) -> str:
    return f'<details class="{kind}"><summary>{summary}</summary>{inside}</details>'


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"
