"""Markdown is converted to HTML that Telegram accepts, without losing a word."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.platforms.telegram.formatting import count_units, render_html, visible_text
from tests.gateway.telegram_markup import Refused, parsed

WRITTEN = {"a", "b", "i", "s", "tg-spoiler", "code", "pre", "blockquote"}

WORDS = st.text("abcäßж日🙂", min_size=1, max_size=6)
BLOCKS = [
    "```",
    "```py\n",
    "\n",
    "\n\n",
    "# ",
    "> ",
    "- ",
    "1. ",
    "   ",
    "|",
    "|-|-|\n",
    "---\n",
    "\t",
    "\r\n",
]
SPANS = [
    "*",
    "**",
    "_",
    "~~",
    "||",
    "`",
    "[",
    "](",
    ")",
    "![",
    "](http://x.y/",
    "<",
    ">",
    "<b>",
    "&",
    "&lt;",
    "\\",
]
SIGNS = st.sampled_from([*BLOCKS, *SPANS, '"', " "])
MARKDOWN = st.lists(WORDS | SIGNS | st.characters(), max_size=60).map("".join)


@given(MARKDOWN | st.text())
def test_telegram_accepts_every_result(text: str) -> None:
    markup = parsed(render_html(text))
    for path in markup.nested:
        assert set(path) <= WRITTEN
        assert len(set(path)) == len(path), "a tag inside itself"
        assert not {"code", "pre"} & set(path[:-1]) or path[-2:] == ("pre", "code")


@given(MARKDOWN)
def test_no_word_is_lost_and_no_text_becomes_blank(text: str) -> None:
    html = render_html(text)
    kept = set(re.findall(r"[^\W_]+", html)) | set(re.findall(r"[^\W_]+", visible_text(html)))
    assert set(re.findall(r"[^\W_]+", text)) <= kept
    assert bool(text.strip()) == bool(parsed(html).text.strip())


@given(st.lists(WORDS, min_size=1, max_size=8), st.data())
def test_the_visible_text_is_the_text_without_markup(words: list[str], data: st.DataObject) -> None:
    around = st.sampled_from(["", "**", "*", "~~", "||", "`"])
    text = " ".join(sign + word + sign for word in words for sign in [data.draw(around)])
    assert parsed(render_html(text)).text == " ".join(words)


@given(MARKDOWN)
def test_the_computed_visible_text_is_that_of_telegram(text: str) -> None:
    html = render_html(text)
    assert visible_text(html) == parsed(html).text


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("**bold** *it* ~~gone~~ ||secret||", "<b>bold</b> <i>it</i> <s>gone</s> <tg-spoiler>secret</tg-spoiler>"),
        ("***both***", "<i><b>both</b></i>"),
        ("`a < b && **c**`", "<code>a &lt; b &amp;&amp; **c**</code>"),
        ("a || b || c", "a || b || c"),
        ("||a *||b||* c||", "<tg-spoiler>a <i>b</i> c</tg-spoiler>"),
        ("```python\nif a < 1:\n  b\n```", '<pre><code class="language-python">if a &lt; 1:\n  b</code></pre>'),
        ("```\nx\n", "<pre>x</pre>"),
        ('```py title="a.py"\nx\n```', 'py title="a.py"\n<pre><code class="language-py">x</code></pre>'),
        ("# A **bold** title\n\ntext", "<b>A bold title</b>\n\ntext"),
        ("[here](https://a.b/Größe?x=1&y=\"2\")", '<a href="https://a.b/Größe?x=1&amp;y=&quot;2&quot;">here</a>'),
        ("[`code`](https://a.b)", '<a href="https://a.b">code</a>'),
        ("[the file](docs/a.md)", "the file (docs/a.md)"),
        ("<me@example.org>", "me@example.org"),
        ("![a cat](https://a.b/c.jpg)", '<a href="https://a.b/c.jpg">a cat</a>'),
        ("![](https://a.b/c.jpg)", '<a href="https://a.b/c.jpg">https://a.b/c.jpg</a>'),
        ("> one\n> > two", "<blockquote>one\n\ntwo</blockquote>"),
        ("- a\n- b\n  - c\n\n3. x\n4. y", "• a\n• b\n   • c\n\n3. x\n4. y"),
        ("| a | bb |\n|---|---|\n| 日本 | *x* |", "<pre>a     bb\n────────\n日本  x</pre>"),
        ("| a |\n|---|\n| b | c |", "<pre>| a |\n|---|\n| b | c |</pre>"),
        ("one\ntwo  \nthree\n\n---\n\nfour", "one\ntwo\nthree\n\n———\n\nfour"),
        ("<script>x</script> & co", "&lt;script&gt;x&lt;/script&gt; &amp; co"),
        ("[a]: https://b.c", "[a]: https://b.c"),
        ("<a>\n  <b>x</b>\n</a>", "&lt;a&gt;\n  &lt;b&gt;x&lt;/b&gt;\n&lt;/a&gt;"),
        ("a \ud800 b", "a \ufffd b"),
        ("", ""),
    ],
)  # fmt: skip
def test_each_kind_of_markup(markdown: str, html: str) -> None:
    assert render_html(markdown) == html
    parsed(html)


def test_units_are_those_of_utf_16() -> None:
    assert [count_units("abc"), count_units("äöü"), count_units("🙂"), count_units("\ud800")] == [3, 3, 2, 1]


@pytest.mark.parametrize("html", ["<b>", "</b>", "<b><i></b></i>", "<u1>x</u1>", "a < b", "<span>x</span>"])
def test_the_parser_of_the_tests_refuses_what_telegram_refuses(html: str) -> None:
    with pytest.raises(Refused):
        parsed(html)
