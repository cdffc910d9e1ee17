"""Texts in the style of model output, and a check that a rendering shows the whole text.

`TEXTS` generates Markdown, HTML, code and noise. `assert_shows(source, rendered)` fails if a visible
character of the source is missing in the rendered text or is in another order. Only characters that a
Markdown parser treats as markup may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser

from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hermes.reasoning import split_reasoning

WORDS = st.text("abcXYZ0189äßж日本🙂שלוםé", min_size=1, max_size=6)
SPECIAL = [
    *(
        "List<String>",
        "<config>on</config>",
        "<br>",
        "</div>",
        "<!-- note -->",
        "<a href='u'>t</a>",
        "a<b",
        "x>y",
    ),
    *("&amp;", "&lt;b&gt;", "&copy;", "&#65;", "AT&T", "&nosuch;", "<?php", "<![CDATA[x]]>", "<T extends U>"),
    *("**b**", "*i*", "_e_", "__s__", "~~d~~", "***both***", "a_b_c", "2*3*4", "in**si**de", "****", "~~"),
    *("`code<T>`", "`` a`b ``", "`", "``", "`<think>`", "<thinking>"),
    *(
        "[w](https://x.example/p)",
        '[w](https://x.example/q "ti")',
        "[w][r]",
        "[w]",
        "[^1]",
        "![p](https://x.example/i)",
    ),
    *("<https://a.example/b>", "https://c.example/?a=1&b=2", "<me@x.example>", "[j](javascript:void)"),
    *(r"\*w\*", r"\<b\>", "\\", r"C:\new\dir", "$x_1 < y$", r"\(z\)", "{{v}}", "%d", "@me", "#tag", "~", "^"),
    *(
        "\U0001f469\u200d\U0001f467",
        "x" * 90,
        "日" * 40,
        "\u05e9\u05dc\u05d5\u05dd",
        "e\u0301",
        "[ ]",
        "[x]",
        "||s||",
    ),
]
INLINE = st.lists(WORDS | st.sampled_from(SPECIAL), min_size=1, max_size=6).map(" ".join)
LINES = st.lists(INLINE, min_size=1, max_size=4)


def _prefixed(prefix: str) -> st.SearchStrategy[str]:
    return LINES.map(lambda lines: "\n".join(f"{prefix}{line}" for line in lines))


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


CELLS = WORDS | st.sampled_from(["a<b", "`c`", "**b**", "<td>", "&amp;", "[w](https://x.example/t)"])
PROSE_BLOCKS = st.one_of(
    LINES.map("\n".join),
    LINES.map("  \n".join),
    LINES.map("\n   ".join),
    INLINE.map("## {}".format),
    INLINE.map("{}\n===".format),
    INLINE.map("{}\n---".format),
    st.sampled_from(
        ["---", "***", "[r]: https://r.example/x", '[r]: <https://r.example> "t"', "[^1]: a note"]
    ),
    st.sampled_from(
        ["<div>\n\n<b>x</b>\n</div>", "<script>\nalert(1)\n</script>", "<!--\nhidden\n-->", "<?xml v?>"]
    ),
    st.sampled_from(
        ["---\ntitle: t\ntags: [a]\n---", "+++\nx = 1\n+++", ":::note\nx\n:::", "Term\n: meaning"]
    ),
    _prefixed("- "),
    _prefixed("* [x] "),
    _prefixed("7. "),
    _prefixed("> "),
    LINES.map(lambda lines: "\n".join(f"{'  ' * depth}- {line}" for depth, line in enumerate(lines))),
    LINES.map(lambda lines: "\n".join(f"{'>' * depth} {line}" for depth, line in enumerate(lines, 1))),
    LINES.map(lambda lines: "- a\n\n  ```py\n" + "\n".join(f"  {line}" for line in lines) + "\n  ```"),
    LINES.map(lambda lines: "```python title=x.py\n" + "\n".join(lines) + "\n```"),
    LINES.map(lambda lines: "~~~\n" + "\n".join(lines)),
    LINES.map(lambda lines: "\n".join(f"    {line}" for line in lines)),
)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=3), min_size=2, max_size=4).map(_table)
NOISE = st.lists(WORDS | st.sampled_from("*_`~<>[]()#|-+.!&;:=\\\"' \n\t"), max_size=40).map("".join)


def _is_answer(text: str) -> bool:
    """Return whether the text is an answer: it does not begin with reasoning, which is shown separately."""
    return split_reasoning(text).answer == text


PROSE = st.lists(PROSE_BLOCKS | NOISE, min_size=1, max_size=5).map("\n\n".join).filter(_is_answer)
TEXTS = st.lists(PROSE_BLOCKS | TABLES | NOISE, min_size=1, max_size=5).map("\n\n".join).filter(_is_answer)

MARKS = set("\\`*_[]()<>#+-.!|~:=\"'")
_PARSER = MarkdownIt("commonmark", {"html": False, "maxNesting": 60}).enable(["strikethrough", "table"])
_PARSER.disable(["reference", "html_block", "html_inline", "entity"])


def assert_shows(source: str, rendered: str, marks: str = "") -> None:
    """Fail if a visible character of `source` is missing in `rendered` or is in another order.

    `marks` are additional characters that this rendering treats as markup. They may be missing.
    """
    without_marks = [char for char in source if char not in MARKS]
    assert_in_order("".join(without_marks), rendered, source)
    texts = "".join(_texts(_PARSER.parse(source)))
    assert_in_order(texts.translate(dict.fromkeys(map(ord, marks))), rendered, source)


def _texts(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.children is not None and token.type != "image":
            yield from _texts(token.children)
        else:
            yield token.content


def assert_in_order(wanted: str, rendered: str, source: str) -> None:
    """Fail if a character of `wanted` is missing in `rendered` or is in another order."""
    at = 0
    for number, char in enumerate(wanted):
        if char.isspace():
            continue
        found = rendered.find(char, at)
        assert found >= 0, f"{char!r} of {wanted[:number]!r}⟪here⟫ is missing in\n{rendered}\nof\n{source}"
        at = found + 1


def text_in(html: str) -> str:
    """Return the visible text of HTML. Each link text is followed by the address of the link, because a click
    on the link shows it."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return "".join(reader.seen)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[str] = []
        self._targets: list[str] = []
        self._numbers: list[int | None] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        assert tag not in ("script", "style", "iframe", "img"), "text became an active tag"
        self.seen.append(given.get("data-language") or "")
        self.seen.append((given.get("class") or "").removeprefix("language-") if tag == "code" else "")
        if tag in ("ol", "ul"):
            self._numbers.append(int(given.get("start") or 1) if tag == "ol" else None)
        if tag == "li" and (number := self._numbers[-1]) is not None:
            self.seen.append(f"\n{number}. ")
            self._numbers[-1] = number + 1
        if tag == "a":
            self._targets.append(f" {given.get('href') or ''} {given.get('title') or ''} ")
        if tag in ("br", "p", "li", "tr", "div", "h1", "h2", "h3", "pre"):
            self.seen.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self.seen.append(self._targets.pop())
        if tag in ("ol", "ul"):
            self._numbers.pop()

    def handle_data(self, data: str) -> None:
        self.seen.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"text became a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"text became a declaration: {decl!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"text became an instruction: {data!r}")
