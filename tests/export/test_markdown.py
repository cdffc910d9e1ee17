"""Markdown: one readable document per conversation, in which message text cannot break the structure."""

from __future__ import annotations

import itertools
import re
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hermes.export.markdown import fence_code
from hermes.export.quoted_markdown import contain_markdown
from hermes_state import SessionDB
from tests.export.conftest import Written, compressed, talk

COMMONMARK = MarkdownIt("commonmark")
_PLAIN = MarkdownIt("commonmark").disable(["html_inline", "html_block", "image", "reference", "autolink"])

PIECES = [
    *("`", "``", "```", "````", "~~~", "~~~~", "#", "## ", "# x", "===", "---", "- ", "1. ", "> ", "\t", "    "),
    *(" ", "\n", "\n\n", "<b>", "</details>", "<!--", "<script>", "<?", "a", "\\", "\\`", "*", "|", "[x]: y"),
    *("\n```\n", "\n~~~\n", "\n   ```\n", "\n- ```\n", "\n> ```\n", "text", "\n- a\n\n  ```\n  b\n"),
]  # fmt: skip


ADDRESSES = [
    *(
        "http://x.example/a",
        "https://x.example/p.png",
        "mailto:a@x.example",
        "docs/a.md",
        "#top",
        "//x.example/p",
    ),
    *("javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd"),
    *("&#106;avascript:x", "javascript&colon;x", "java&Tab;script:x", "java\\script:x", "javascript\\:x"),
    *(
        "<javascript:x>",
        "<java script:x>",
        "\njavascript:x",
        "%6aavascript:x",
        "blob:x",
        "http:x",
        "intent:x",
    ),
]
LINKING = [
    *(
        "[",
        "]",
        "(",
        ")",
        "![",
        "](",
        "]:",
        "]: ",
        "][",
        "[a](",
        "[a]: ",
        "![a](",
        "![a][a]",
        "[a]",
        "[a][]",
        "!",
    ),
    *(
        "<",
        ">",
        "<img src=",
        "'",
        '"',
        ' "title"',
        '\n"title\n',
        "&",
        ";",
        ":",
        "^",
        "[^1]: ",
        "- [ ] ",
        "| a | b |\n",
    ),
    *(f"[a]({one})" for one in ADDRESSES),
    *(f"[a]: {one}\n" for one in ADDRESSES),
    *(f"<{one}>" for one in ADDRESSES),
]

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=:)")
TRUSTING = [MarkdownIt("commonmark"), MarkdownIt("gfm-like"), MarkdownIt("js-default", {"html": True})]
for one in TRUSTING:
    # The viewer may render any address. The export must prevent it from loading one.
    one.validateLink = lambda url: True  # type: ignore[method-assign]


def active(document: str, renderer: MarkdownIt) -> tuple[list[str], list[str]]:
    """Return the addresses of links and the addresses of pictures that a Markdown parser finds in
    `document`."""
    tokens = renderer.parse(document)
    inside = list(tokens)
    links, pictures = [], []
    while inside:
        token = inside.pop()
        inside += token.children or []
        if token.type == "link_open":
            links.append(str(token.attrs["href"]))
        elif token.type == "image":
            pictures.append(str(token.attrs["src"]))
    return links, pictures


def scheme(address: str) -> str:
    """Return the scheme of `address` as a browser reads it. A browser ignores invisible characters."""
    plain = "".join(sign for sign in unquote(unescape(address)) if sign > " ").lower()
    found = SCHEME.match(plain)
    return found[0] if found else ""


@pytest.mark.parametrize("pictures", [False, True])
@given(st.lists(st.sampled_from([*PIECES, *LINKING, *ADDRESSES]), max_size=14).map("".join))
def test_no_dangerous_link_and_no_picture_is_left(pictures: bool, said: str) -> None:
    document = f"# before\n\n{contain_markdown(said, pictures=pictures)}\n\n[a] [x] ![a] [a][a] [x][a]\n"
    for renderer in TRUSTING:
        links, shown = active(document, renderer)
        assert {scheme(one) for one in links} <= {"", "http", "https", "mailto"}
        assert {scheme(one) for one in shown} <= ({"", "http", "https", "mailto"} if pictures else set())
        assert not has_html(renderer.parse(document))


@given(st.text(alphabet='[]()!<>:`\\a\n "jx&;#', max_size=40))
def test_no_picture_and_no_definition_is_left_of_any_text(said: str) -> None:
    for renderer in TRUSTING:
        environment: dict[str, Any] = {}
        renderer.parse(contain_markdown(said), environment)
        assert not environment.get("references")
        assert active(contain_markdown(said), renderer)[1] == []


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("![cat](https://x.example/cat.png)", "![cat](https://x.example/cat.png)"),
        ("[click](javascript:alert(1))", "[click](javascript:alert(1))"),
        ("[click][1]\n\n[1]: javascript:alert(1)", "[click][1]\n[1]: javascript:alert(1)"),
        ('<img src="https://x.example/a.png">', '<img src="https://x.example/a.png">'),
        ("<javascript:alert(1)>", "<javascript:alert(1)>"),
    ],
)
def test_disarmed_markup_is_still_readable(said: str, text: str) -> None:
    inline = [token for token in COMMONMARK.parse(contain_markdown(said)) if token.type == "inline"]
    assert "\n".join("".join(one.content for one in token.children or []) for token in inline) == text


@pytest.mark.parametrize(
    "said",
    [
        "see [the docs](https://x.example/a_(b)?c=d&e=f#g) and `d[k](x)`",
        'a [title](http://x.example "hello") and a [path](../docs/a.md#top)',
        "a [mail](mailto:ann@x.example), [`code`](https://x.example), a[0]: b",
        "```\n![x](http://x.example)\n[a]: javascript:x\n```",
    ],
)
def test_links_to_the_web_and_code_are_not_changed(said: str) -> None:
    assert contain_markdown(said) == said


def test_pictures_are_kept_on_request() -> None:
    assert (
        contain_markdown("![cat](https://x.example/cat.png)", pictures=True)
        == "![cat](https://x.example/cat.png)"
    )
    assert active(contain_markdown("![cat](data:image/svg+xml,x)", pictures=True), TRUSTING[0]) == ([], [])


def headings(tokens: list[Token]) -> list[str]:
    """Return the headings of the first two levels that are not inside quotes or lists."""
    at = [i for i, one in enumerate(tokens) if one.type == "heading_open" and one.level == 0]
    return [tokens[i + 1].content for i in at if tokens[i].tag in ("h1", "h2")]


def has_html(tokens: list[Token]) -> bool:
    inside = [child for token in tokens for child in token.children or []]
    return any(one.type in ("html_block", "html_inline") for one in [*tokens, *inside])


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("\t<b>\n   ```\n")
def test_message_text_cannot_change_the_structure(said: str) -> None:
    tokens = COMMONMARK.parse(f"## before\n\n{contain_markdown(said)}\n\n## after\n")
    assert headings(tokens) == ["before", "after"]
    assert not has_html(tokens)


@given(st.text(alphabet="`~ab\n", max_size=40))
def test_a_fence_encloses_any_text(said: str) -> None:
    tokens = COMMONMARK.parse(f"{fence_code(said)}\n\n## after\n")
    assert [token.type for token in tokens][:2] == ["fence", "heading_open"]
    assert tokens[0].content == f"{said}\n"


@pytest.mark.parametrize(
    "said",
    [
        "plain text, *marked* and `code <b>`",
        "```python\nif a <b: # not a heading\n    pass\n```",
        "1. a step\n   ```html\n   <div>\n   ```\n2. another",
        "| a | b |\n|---|---|\n| 1 | 2 |",
    ],
)
def test_harmless_text_is_not_changed(said: str) -> None:
    assert contain_markdown(said) == said


def test_a_document_shows_the_author_and_time_of_each_message(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "What is *this*?"), ("assistant", "# That\n\nA thing."), model="some/model")
    db.set_session_title("a", "Things <3 [x]")
    document = written("md", "a")
    mark = "<!-- Exported by Hermes Sessions -->"
    assert document.startswith(f"# Things \\<3 \\[x\\]\n{mark}\n\n- **Source:** cli · some/model\n")
    assert "- **Session:** `a`\n" in document
    assert "\n\nWhat is *this*?\n" in document
    assert "\n\n### That\n\nA thing.\n" in document
    (person, answer) = [line for line in document.splitlines() if line.startswith("## ")]
    assert person.startswith("## User · 2026-05-2")
    assert answer.startswith("## Assistant · 2026-05-2")


def test_times_are_local_with_their_offset(
    db: SessionDB, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        talk(db, "a", ("user", "x"), started_at=1_780_000_000.0)
        assert "## User · 2026-05-29 01:56:41 +05:30\n" in written("md", "a")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_all_sessions_of_a_conversation_follow_each_other_and_nothing_is_repeated(
    db: SessionDB, written: Written
) -> None:
    compressed(db)
    db.set_session_title("second", "a title")
    document = written("md", "second")
    order = ["alpha", "beta", "gamma", "*Continued in `second`", "the summary", "delta"]
    at = [document.index(word) for word in order]
    assert at == sorted(at)
    assert [document.count(word) for word in order] == [1] * len(order)
    assert "- **Sessions:** `first`, `second`\n" in document


def test_tool_calls_are_fenced_json_and_results_are_complete(db: SessionDB, written: Written) -> None:
    db.create_session("a", "cli")
    call = {"id": "c1", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
    db.append_message("a", "assistant", None, tool_calls=[call], reasoning="thinking hard")
    db.append_message("a", "tool", "```\n" + "x" * 50_000, tool_name="terminal", tool_call_id="c1")
    document = written("md", "a")
    assert '**Calls terminal**\n\n```json\n{\n  "command": "ls"\n}\n```\n' in document
    assert f"\n````\n```\n{'x' * 50_000}\n````\n" in document
    assert "## Tool · terminal · " in document
    assert "thinking hard" not in document


def test_rewound_messages_are_not_exported(db: SessionDB, written: Written) -> None:
    said = talk(db, "a", ("user", "kept"), ("user", "regretted"))
    db.rewind_to_message("a", said[1])
    assert "kept" in written("md", "a")
    assert "regretted" not in written("md", "a")


def test_a_document_contains_no_escape_sequences(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "a\x1b[2Jb\x1b]0;title\x07\x9b31m\0c\u202e"), ("tool", "\x1b[31mred"))
    document = written("md", "a")
    assert not set(document) & set("\x1b\x07\x9b\0\u202e")


def test_several_documents_are_ruled_off(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "one"))
    talk(db, "b", ("user", "two"))
    documents = written("md", "a", "b").split("\n---\n\n")
    assert [document.splitlines()[0] for document in documents] == ["# one", "# two"]


@pytest.mark.parametrize(
    ("said", "links"),
    [
        ("[a](javascript:x) ![b](https://y)", []),
        ("[a](javascript:x) b](https://y)", []),
        ("![a](https://y) b](https://z)", []),
        ("[![i](https://y)](https://z)", ["https://z"]),
        ("[a [b](data:x) c](https://z)", ["https://z"]),
        ("[a [b](https://y) c](data:x)", ["https://y"]),
        ("[a wow![1] b](https://y)", ["https://y"]),
        ("[a](javascript:x [b](https://y))", ["https://y"]),
        ("[`c`](file:///a) ![`b`](https://y)", []),
        ("[a\nb](https://y)", []),
        ("[a](https://y/![b](https://z))", ["https://y/!%5Bb%5D(https://z)"]),
        ("[a](javascript:x)\n[b](https://y)", ["https://y"]),
        ("[a][b] ![c][b] d](https://y)\n\n[b]: https://z", []),
        ("<javascript:x> [a](https://y)", ["https://y"]),
    ],
)
def test_text_that_only_looks_like_a_link_does_not_become_one(said: str, links: list[str]) -> None:
    tokens = [token for block in COMMONMARK.parse(contain_markdown(said)) for token in block.children or ()]
    assert [token.attrs["href"] for token in tokens if token.type == "link_open"] == links
    assert not any(token.type == "image" for token in tokens)


@given(st.lists(st.sampled_from([*LINKING, *ADDRESSES, "a", " ", "\n"]), max_size=14).map("".join))
def test_a_link_that_is_left_has_the_text_and_the_address_that_it_had(said: str) -> None:
    def links(text: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for block in _PLAIN.parse(text):
            children = block.children or []
            for number, token in enumerate(children):
                if token.type == "link_open":
                    inside = itertools.takewhile(lambda one: one.type != "link_close", children[number + 1 :])
                    words = "".join(one.content for one in inside)
                    found.append((str(token.attrs["href"]), "".join(words.split())))
        return found

    # A parser that treats HTML, entities, pictures and definitions as text.
    assert set(links(contain_markdown(said))) <= set(links(said))
