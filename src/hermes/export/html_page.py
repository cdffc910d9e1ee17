"""HTML: one self-contained page for any number of conversations.

The page is written incrementally: first the list of conversations, then each conversation. Chats come before
subagents and jobs; within these groups, the newest comes first. The page requests nothing from the network,
and its Content-Security-Policy allows only its own style and script, by their hashes. It has a list, a
conversation view and a search. Every message has an anchor (`#msg-17`). Reasoning, tool calls and tool
results are collapsed. The system prompt and rewound messages are left out; JSONL contains them.

If a page has several conversations, each of them is in a `<noscript>`. A browser that runs scripts reads the
content of this element as text, and the script inserts a conversation when it is opened. A page with
thousands of conversations therefore loads quickly. A browser that runs no scripts reads the content as HTML,
and the list links to each conversation.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from hermes import clock
from hermes.export.export_recognition import HTML_MARK
from hermes.export.markdown_html import render_text
from hermes.export.message_text import (
    Call,
    Part,
    format_json,
    format_time,
    get_role,
    is_visible,
    join_parts,
    list_answer_parts,
    list_calls,
)
from hermes.export.plan import Conversation, Load, Session
from hermes.reasoning import extract_reasoning
from hermes.text import spell_controls, to_text

FOLDED_FROM = 100_000
"""A message longer than this many characters is collapsed, because laying out longer texts makes a browser
slow."""

KIND_NAMES = {"child": "subagent", "job": "job", "tool": "tool"}
"""Display names of the kinds of conversations in which no person takes part."""
OTHERS = "Subagents, jobs and tools"

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
GROUP = """</ol><h2>{name}</h2><ol>
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
    css, js = _read_asset("page.css"), _read_asset("page.js")
    counted = _format_count(len(conversations), "conversation")
    title = conversations[0].heading if len(conversations) == 1 else counted
    yield HEAD.format(
        mark=HTML_MARK,
        title=escape_text(title),
        css=css,
        style=_compute_hash(css),
        script=_compute_hash(js),
        counted=counted,
    )
    ordered = sorted(conversations, key=lambda found: (_is_chat(found), found.last_active), reverse=True)
    numbers = {segment.id: number for number, found in enumerate(ordered, 1) for segment in found.segments}
    for number, conversation in enumerate(ordered, 1):
        if not _is_chat(conversation) and (number == 1 or _is_chat(ordered[number - 2])):
            yield GROUP.format(name=OTHERS)
        yield _format_entry(number, conversation)
    yield MAIN
    for number, conversation in enumerate(ordered, 1):
        yield f'<article id="c{number}">{"<noscript>" if len(ordered) > 1 else ""}\n'
        yield from _format_conversation(conversation, load, numbers)
        yield f"{'</noscript>' if len(ordered) > 1 else ''}</article>\n"
    yield TAIL.format(js=js)


def _is_chat(conversation: Conversation) -> bool:
    return conversation.segments[0].kind not in KIND_NAMES


def _format_entry(number: int, conversation: Conversation) -> str:
    first = conversation.segments[0]
    facts = [clock.format_day(conversation.last_active), escape_text(first.source)]
    if first.kind in KIND_NAMES:
        facts.append(KIND_NAMES[first.kind])
    if conversation.messages:
        facts.append(_format_count(conversation.messages, "message"))
    return ENTRY.format(number=number, title=escape_text(conversation.heading), told=" · ".join(facts))


def _format_conversation(conversation: Conversation, load: Load, numbers: Mapping[str, int]) -> Iterator[str]:
    """Yield the HTML of a conversation, piece by piece. `load` returns a session by its id. `numbers` maps the
    id of each session to the number of its conversation on the page."""
    yield f"<header><h1>{escape_text(conversation.heading)}</h1>\n"
    has_head = False
    for segment in conversation.segments:
        session = load(segment.id)
        if session is None:
            continue
        yield (
            _format_continued(session)
            if has_head
            else f"<dl>{_format_facts(conversation, session, numbers)}</dl></header>\n"
        )
        for message in session["messages"]:
            if is_visible(message):
                yield _format_message(message)
        has_head = True
    if not has_head:
        yield "</header>"


def _format_facts(conversation: Conversation, session: Session, numbers: Mapping[str, int]) -> str:
    facts = [
        ("Source", session.get("source")),
        ("Model", session.get("model")),
        ("Started", format_time(conversation.started_at)),
        ("Last active", format_time(conversation.last_active)),
        ("Workspace", session.get("workspace")),
        ("Tags", ", ".join(session.get("tags") or [])),
        ("Session", ", ".join(to_text(segment.id) for segment in conversation.segments)),
    ]
    written = [(name, escape_text(value)) for name, value in facts if value]
    if parent := session.get("parent_session_id"):
        origin = escape_text(f"{parent} ({session.get('relation') or 'child'})")
        number = numbers.get(parent)
        written.append(("Parent session", f'<a href="#c{number}">{origin}</a>' if number else origin))
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in written)


def _format_continued(session: Session) -> str:
    started = format_time(session["started_at"])
    return f'<p class="continued">Continued in {escape_text(session["id"])} · {started}</p>\n'


def _format_message(message: dict[str, Any]) -> str:
    role, anchor = message["role"], f"msg-{escape_text(message['id'])}"
    kind = role if role in ("user", "assistant", "tool") else "system"
    at = message["timestamp"]
    lines = [
        MESSAGE.format(
            kind=kind,
            anchor=anchor,
            role=escape_text(get_role(message)),
            at=clock.format_iso(at),
            when=format_time(at),
        )
    ]
    reasoning = extract_reasoning(message)
    if reasoning:
        lines.append(_fold("Reasoning", render_text(reasoning), "reasoning"))
    parts = list_answer_parts(message)
    lines += [_format_result(message, parts)] if role == "tool" else map(_format_part, parts)
    lines += map(_format_call, list_calls(message))
    return "".join([*lines, "</section>\n"])


def _format_part(part: Part) -> str:
    if part.kind == "image":
        return f'<img src="{escape_text(part.text)}" alt="image" loading="lazy">'
    if part.kind == "other":
        return _fold("Attachment", f"<pre>{escape_text(part.text)}</pre>", "call")
    if len(part.text) >= FOLDED_FROM:
        return _fold(
            _format_count(len(part.text), "character"), f"<pre>{escape_text(part.text)}</pre>", "long"
        )
    return render_text(part.text)


def _format_result(message: dict[str, Any], parts: list[Part]) -> str:
    result_text = join_parts(parts)
    name = escape_text(message.get("tool_name") or "result")
    return _fold(
        f"{name} · {_format_count(len(result_text), 'character')}",
        f"<pre>{escape_text(result_text)}</pre>",
        "call",
    )


def _format_call(call: Call) -> str:
    return _fold(
        f"Calls {escape_text(call.name)}", f"<pre>{escape_text(format_json(call.arguments))}</pre>", "call"
    )


def _fold(summary: str, inside: str, kind: str) -> str:
    return f'<details class="{kind}"><summary>{summary}</summary>{inside}</details>'


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _compute_hash(source: str) -> str:
    return f"sha256-{b64encode(sha256(source.encode()).digest()).decode()}"


def escape_text(text: object) -> str:
    """Escape text for HTML, including attribute values."""
    return escape(spell_controls(str(text)))
