"""HTML: one self-contained page for any number of conversations.

The page is written incrementally: the list of conversations first, then each conversation. It requests
nothing from the network, and its Content-Security-Policy allows only its own style and script, by their
hashes. Without its script the page is a long document. With it, the page has a list, a conversation view and
a search. Every message has an anchor (`#msg-17`). Reasoning, tool calls and tool results are collapsed. The
system prompt and rewound messages are left out; JSONL contains them.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from hermes import clock
from hermes.export.export_recognition import HTML_MARK
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
"""Length in characters above which a message is collapsed. Laying out longer texts makes a browser slow."""

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
    for number, conversation in enumerate(conversations, 1):
        yield _format_entry(number, conversation)
    yield MAIN
    for number, conversation in enumerate(conversations, 1):
        yield from _format_article(number, conversation, load)
    yield TAIL.format(js=js)


def _format_entry(number: int, conversation: Conversation) -> str:
    facts = [clock.format_day(conversation.last_active), escape_text(conversation.segments[0].source)]
    if conversation.messages:
        facts.append(_format_count(conversation.messages, "message"))
    return ENTRY.format(number=number, title=escape_text(conversation.heading), told=" · ".join(facts))


def _format_article(number: int, conversation: Conversation, load: Load) -> Iterator[str]:
    yield f'<article id="c{number}">\n<header><h1>{escape_text(conversation.heading)}</h1>\n'
    has_head = False
    for segment in conversation.segments:
        session = load(segment.id)
        if session is None:
            continue
        yield (
            _format_continued(session)
            if has_head
            else f"<dl>{_format_facts(conversation, session)}</dl></header>\n"
        )
        for message in session["messages"]:
            if is_visible(message):
                yield _format_message(message)
        has_head = True
    yield "</article>\n" if has_head else "</header></article>\n"


def _format_facts(conversation: Conversation, session: Session) -> str:
    parent = session.get("parent_session_id")
    origin = f"{parent} ({session.get('relation') or 'child'})" if parent else None
    facts = [
        ("Source", session.get("source")),
        ("Model", session.get("model")),
        ("Started", format_time(conversation.started_at)),
        ("Last active", format_time(conversation.last_active)),
        ("Workspace", session.get("workspace")),
        ("Tags", ", ".join(session.get("tags") or [])),
        ("Came out of", origin),
        ("Session", ", ".join(to_text(segment.id) for segment in conversation.segments)),
    ]
    return "".join(
        f"<div><dt>{name}</dt><dd>{escape_text(value)}</dd></div>" for name, value in facts if value
    )


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


# Text as HTML: code blocks, headings, inline code and bold text. Everything else is shown as typed.
#
# Text is escaped first and marked up afterwards, so that no text can become a tag. There are no links: an
# address is shown as text, and nothing leads out of the page.

_FENCE = re.compile(r"^[ \t]*(`{3,}(?!.*`)|~{3,})[ \t]*(.*?)[ \t]*$")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_MARKS = re.compile(r"(?<![`\\])(`+)(?!`)([\s\S]*?[^`])\1(?!`)|(?<!\*)\*\*(?!\s)([^*\n]*[^*\s])\*\*(?!\*)")
"""Inline code, between two runs of equally many backticks, and bold text."""
_PART = re.compile(r"(?m)^(?=[ \t]*(?:[-*+>]|\d{1,9}[.)])(?:[ \t]|$))")
"""The start of a list item or a quote. Inline markup does not extend across it."""
_QUOTED = re.compile(r"(?m)^[ \t]*>")


def escape_text(text: object) -> str:
    """Escape text for HTML, including attribute values."""
    return escape(spell_controls(str(text)))


def render_text(text: str) -> str:
    return "".join(_render_blocks(spell_controls(text).split("\n")))


def _render_blocks(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    code: list[str] = []
    fence = language = ""
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2]:
                yield _render_code(code, language)
                fence, code = "", []
            else:
                code.append(line)
            continue
        heading = None if mark else _HEADING.match(line)
        if mark or heading or not line.strip():
            yield from _render_paragraph(paragraph)
            paragraph = []
            if mark:
                fence, language = mark[1], mark[2]
            elif heading:
                yield f"<h3>{_render_inline(heading[1])}</h3>"
        else:
            paragraph.append(line)
    yield from _render_paragraph(paragraph)
    if fence:
        yield _render_code(code, language)


def _render_paragraph(lines: list[str]) -> Iterator[str]:
    if lines:
        joined = "\n".join(lines)
        # An indented paragraph may also be the rest of a list item. Its markup is kept as typed.
        is_code = lines[0].startswith(("    ", "\t"))
        yield f"<p>{escape(joined, quote=False) if is_code else _render_inline(joined)}</p>"


def _render_code(lines: list[str], language: str) -> str:
    label = f' data-language="{escape(language)}"' if language else ""
    joined = "\n".join(lines)
    return f"<pre{label}><code>{escape(joined)}</code></pre>"


def _render_inline(text: str) -> str:
    is_quoted = _QUOTED.search(text) is not None
    parts = text.splitlines(keepends=True) if is_quoted else _PART.split(text)
    escaped = [escape(part, quote=False) for part in parts]
    if is_quoted and any("`" in _MARKS.sub("", part) for part in escaped):
        return "".join(escaped)  # a single backtick may belong to markup on another line of the quote
    return "".join(_MARKS.sub(_render_mark, part) for part in escaped)


def _render_mark(found: re.Match[str]) -> str:
    if found[3]:
        return f"<strong>{found[3]}</strong>"
    return f"<code>{found[2].strip()}</code>"
