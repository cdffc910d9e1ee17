"""Exports lose no visible character, HTML is shown as text, and line breaks are kept."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from hypothesis import example, given
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hermes.export.markdown_html import render_text
from hermes.export.quoted_markdown import contain_markdown
from tests.rendered_texts import TEXTS, assert_shows, text_in

_VIEWER = MarkdownIt("commonmark", {"html": True, "maxNesting": 200}).enable(["strikethrough", "table"])


@given(TEXTS)
@example("**** in**si**de")
@example("` `` a`b ``")
@example("- `\n- `code<T>`")
@example("> `\n> `code<T>`")
@example("> `\n>> `")
@example('[w][r] [r] a\n\n[r]: https://r.example/x\n  [r]: <https://r.example> "t"')
def test_the_page_shows_a_text_whole(text: str) -> None:
    assert_shows(text, text_in(render_text(text)), marks="[]" if "]:" in text else "")  # reference links


@given(TEXTS)
@example("[a](javascript:x) ![b](https://y)")
@example("![a](https://y) b](https://z) [c [d](data:x) e](https://y)")
def test_a_markdown_viewer_shows_a_text_whole(text: str) -> None:
    assert_shows(text, "".join(_seen(_VIEWER.parse(contain_markdown(text)))))


def test_a_markdown_viewer_keeps_the_lines() -> None:
    tokens = _VIEWER.parse(contain_markdown("one\ntwo\n\n- three\n  four\n\n```\nfive\n```"))
    breaks = [
        child.type for token in tokens for child in token.children or () if child.type.endswith("break")
    ]
    assert breaks == ["hardbreak", "hardbreak"]


def _seen(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        assert not token.type.startswith("html"), f"text became HTML: {token.content!r}"
        if token.type in ("fence", "list_item_open"):
            yield token.info
        if token.type in ("code_block", "code_inline"):  # text that may or may not be code is treated as text
            yield token.content + html.unescape(token.content)
        elif token.children is not None and token.type != "image":
            yield from _seen(token.children)
        else:
            yield token.content
        if token.type == "link_close":
            yield _last_target(tokens, token)


def _last_target(tokens: Sequence[Token], closing: Token) -> str:
    before = tokens[: next(number for number, token in enumerate(tokens) if token is closing)]
    opening = next(token for token in reversed(before) if token.type == "link_open")
    return f" {opening.attrs.get('href')} {opening.attrs.get('title') or ''} "
