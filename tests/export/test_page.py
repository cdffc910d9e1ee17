"""The HTML page is self-contained. Nothing in a message can do harm."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.export.markdown_html import render_text
from hermes_state import SessionDB
from tests.export.conftest import T, Written, compressed, talk
from tests.rendered_texts import TEXTS

HOSTILE = (
    "</script></style><img src=x onerror=alert(1)><script>alert(2)</script> \x1b[2J\0 \u202e \" ' &amp; `<b>`"
)
ALLOWED = set(
    "a blockquote br code div em h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split()
)
EMPTY = {"br", "hr", "img", "input", "meta"}
ATTRIBUTES = {"class", "data-language", "href", "rel", "start", "target", "title"}


class Tags(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.depth = 0
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.depth += tag not in EMPTY

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE_PIECES = st.lists(
    st.sampled_from(
        [
            *("`", "``", "```", "\n", "\n\n", "**", "<b>", "&", '"', "# ", "~~~", "a", "x y", "</pre>"),
            *("[a](", "javascript:alert(1)", "data:text/html,x", "https://x.example", ")", "<", ">", "- "),
            *("\n|-|:-:|\n", "1. ", "_", "![", "]", "&#106;avascript:", "java\tscript:", "mailto:", "'"),
            *("> ", "| ", "HTTPS://", "</noscript>"),
        ]
    )
).map("".join)


@given(HOSTILE_PIECES | TEXTS)
def test_a_message_creates_only_allowed_tags_and_closes_them(said: str) -> None:
    read = Tags(render_text(said))
    assert {tag for tag, _ in read.tags} <= ALLOWED
    assert {name for _, told in read.tags for name in told} <= ATTRIBUTES
    assert read.depth == 0
    targets = [told["href"] or "" for tag, told in read.tags if tag == "a"]
    assert all(re.match("(?i)https?://|mailto:", target) for target in targets)
    told = "".join(value or "" for _, told in read.tags for value in told.values())
    assert "<b>" not in said or "<b>" in read.text + told


def test_markdown_is_rendered() -> None:
    said = """# Hi
some `code`, **bold**, *soft* and ~~gone~~
next   line

- one
  1. two

> quoted

| a | b |
|---|--:|
| 1 | **2** |

---

```py
a < b
```"""
    assert render_text(said).replace("\n", "") == (
        "<h3>Hi</h3><p>some <code>code</code>, <strong>bold</strong>, <em>soft</em> and <s>gone</s><br>next   line</p>"
        "<ul><li><p>one</p><ol><li><p>two</p></li></ol></li></ul><blockquote><p>quoted</p></blockquote>"
        '<div class="table"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead>'
        '<tbody><tr><td>1</td><td class="right"><strong>2</strong></td></tr></tbody></table></div><hr>'
        '<pre data-language="py"><code>a &lt; b</code></pre>'
    )


EVERY_RULE = "> q\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n\n1. x\n\n***\n\nover\n===\n\n# end"
LINES = [
    "word",
    "two words",
    "- a",
    "  b",
    "1. x",
    "# h",
    "---",
    "===",
    "> q",
    "| a | b |",
    "|-|-|",
    "```",
    "~~~",
    "    code",
]
LINES += [
    "**b** _i_",
    "`c`",
    "a\\*b",
    "~~s~~",
    "[x](https://x.example)",
    "<https://x.example>",
    "&amp;",
    "* * *",
    "",
    "",
    "",
]


@given(st.lists(st.sampled_from(LINES), max_size=8).map("\n".join))
def test_a_text_looks_the_same_whatever_other_markup_precedes_it(said: str) -> None:
    """The parser skips the rules that a text does not need. This must not change the result."""
    assert render_text(f"{EVERY_RULE}\n\n{said}") == render_text(EVERY_RULE) + render_text(said)


@pytest.mark.parametrize(
    ("said", "target", "shown"),
    [
        ("see [the page](https://x.example/a?b=1&c=2)", "https://x.example/a?b=1&c=2", "the page"),
        ("(see https://x.example/a_(b)).", "https://x.example/a_(b)", "https://x.example/a_(b)"),
        ("见https://x.example/a吧。", "https://x.example/a", "https://x.example/a"),
        ("<https://x.example>", "https://x.example", "https://x.example"),
        ("<ann@x.example>", "mailto:ann@x.example", "ann@x.example"),
        ("**https://x.example/**", "https://x.example/", "https://x.example/"),
        ("![a picture](https://x.example/p.png)", "https://x.example/p.png", "a picture"),
    ],
)
def test_links_lead_to_the_web_and_to_mail_addresses(said: str, target: str, shown: str) -> None:
    source = render_text(said)
    (attributes,) = [told for tag, told in Tags(source).tags if tag == "a"]
    assert attributes == {"href": target, "target": "_blank", "rel": "noopener"}
    assert f">{shown}</a>" in source


@pytest.mark.parametrize(
    ("used", "shown"),
    [
        ("[the page][1]", "the page</a>[1]"),
        ("[The Page][]\n\n[the page]: https://x.example/a", "The Page</a>"),
        ("[1]", "1</a>"),
    ],
)
def test_a_reference_link_leads_to_its_definition_which_stays_visible(used: str, shown: str) -> None:
    source = render_text(f'See {used}\n\n[1]: https://x.example/a "A title"\n[2]: javascript:alert(1)')
    first = next(told for tag, told in Tags(source).tags if tag == "a")
    assert first["href"] == "https://x.example/a"
    assert f'target="_blank" rel="noopener">{shown}' in source
    assert "[1]: <a" in source
    assert ">https://x.example/a</a>" in source
    assert "[2]: javascript:alert(1)" in source


def test_code_defines_no_reference() -> None:
    assert "<a" not in render_text("[a][1]\n\n```\n[1]: https:/x.example\n[1]: https://x.example\n```")


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("[bank.example](https://evil.example/a)", "https://evil.example/a"),
        ("[**https://bank.example**/a](https://evil.example)", "https://evil.example"),
        ("[Log in at bank.example now](https://evil.example)", "https://evil.example"),
        ("[Go to bank.example.](https://evil.example)", "https://evil.example"),
        ("[bank.example][1]\n\n[1]: https://evil.example", "https://evil.example"),
        ("[bank.example](https://bank.example@evil.example)", "https://evil.example"),
    ],
)
def test_a_link_that_names_another_address_shows_its_own(said: str, address: str) -> None:
    assert f"</a> ({address})" in render_text(said)


@pytest.mark.parametrize(
    "said",
    [
        "[the bank](https://bank.example/a)",
        "[bank.example](https://bank.example/)",
        "[see www.bank.example now](https://bank.example/a)",
        "https://bank.example/a",
        "<ann@bank.example>",
    ],
)
def test_a_link_that_names_its_own_address_shows_no_other(said: str) -> None:
    assert "</a> (" not in render_text(said)


@pytest.mark.parametrize(
    "said",
    [
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](data:text/html,<b>)",
        "[a](vbscript:x)",
        "[a](file:///etc/passwd)",
        "[a](//x.example)",
        "[a](/etc)",
        "<javascript:alert(1)>",
        "[a](&#106;avascript:alert(1))",
        "`https://x.example`",
        "[a]\n\n[a]: javascript:alert(1)",
    ],
)
def test_other_targets_are_shown_as_typed(said: str) -> None:
    read = Tags(render_text(said))
    assert [
        told["href"] for tag, told in read.tags if tag == "a" and told["href"] != "https://x.example"
    ] == []
    assert said.replace("`", "").replace("\n", "") in read.text.replace("\n", "")


def test_the_page_obeys_nothing_but_its_own_style_and_script(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", HOSTILE), ("assistant", HOSTILE), ("tool", HOSTILE))
    db.set_session_title("a", HOSTILE[:90])
    source = written("html", "a")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', source)
    assert policy.startswith("default-src 'none'; img-src data:;")
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        assert f"{tag}-src 'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'" in policy
    read = Tags(source)
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert not [tag for tag, _ in read.tags if tag in ("img", "link", "iframe", "form", "b")]
    assert not [name for _, told in read.tags for name in told if name.startswith("on") or name == "style"]
    addresses = [told[name] or "" for _, told in read.tags for name in ("src", "href") if name in told]
    assert all(address.startswith("#") for address in addresses)
    assert "</noscript" not in source
    assert not set(source) & set("\x1b\0\u202e")


def test_every_message_has_an_address_and_every_conversation_a_place_in_the_list(
    db: SessionDB, written: Written
) -> None:
    compressed(db)
    ids = talk(db, "b", ("user", "one"))
    read = Tags(written("html", "second", "b"))
    places = [told["id"] for tag, told in read.tags if tag == "article"]
    assert [told["href"] for tag, told in read.tags if tag == "a"][:2] == [f"#{place}" for place in places]
    assert f"msg-{ids[0]}" in [told.get("id") for tag, told in read.tags if tag == "section"]
    assert len([tag for tag, _ in read.tags if tag == "section"]) == 6


def test_a_single_conversation_needs_no_script(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "one"))
    page = written("html", "a").partition("<main>")[2].partition("<script>")[0]
    assert "<section" in page
    assert "<noscript" not in page


def test_conversations_of_several_are_text_until_they_are_opened(db: SessionDB, written: Written) -> None:
    """Each conversation is in a `noscript` element, whose contents are plain text in a browser that runs
    scripts, until the conversation is opened."""
    for name in ("a", "b"):
        talk(db, name, ("user", f"from {name} </noscript><b>"), ("assistant", "</article>"))
    source = written("html", "a", "b").partition("<script>")[0]
    left = re.sub("<noscript>.*?</noscript>", "", source, flags=re.DOTALL)
    assert left.count("<article") == left.count("</article>") == 2
    assert "<section" not in left
    assert "from a" not in left.partition("<main>")[2]
    assert source.count("</noscript>") == source.count("<noscript>") == 2


def test_the_newest_chat_of_a_person_is_first(db: SessionDB, written: Written) -> None:
    talk(db, "old", ("user", "the old chat"), started_at=T)
    talk(db, "new", ("user", "the new chat"), started_at=T + 100)
    talk(db, "job", ("user", "the job"), source="cron", started_at=T + 200)
    talk(db, "task", ("user", "the task"), parent_session_id="new", started_at=T + 300)
    source = written("html", "old", "new", "job", "task")
    titles = re.findall('<span class="title">(.*?)</span><small>(.*?)</small>', source)
    assert [title for title, _ in titles] == ["the new chat", "the old chat", "the task", "the job"]
    assert [facts.split(" · ")[2] for _, facts in titles] == ["1 message", "1 message", "subagent", "job"]
    assert re.findall("<h1>(.*?)</h1>", source) == [title for title, _ in titles]
    assert source.index("the old chat") < source.index("Subagents, jobs and tools") < source.index("the task")
    assert '<dt>Parent session</dt><dd><a href="#c1">new (child)</a></dd>' in source


def test_images_are_in_the_page_and_other_addresses_are_not_fetched(db: SessionDB, written: Written) -> None:
    shown, hidden = "data:image/png;base64,AAAA", "https://example.com/track.png"
    parts = [
        {"type": "image_url", "image_url": {"url": url}} for url in (shown, hidden, "data:text/html,<b>")
    ]
    talk(db, "a", ("user", parts))
    read = Tags(written("html", "a"))
    assert [told["src"] for tag, told in read.tags if tag == "img"] == [shown]
    assert hidden in read.text


def test_a_huge_message_is_folded_and_complete(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "x" * 300_000))
    source = written("html", "a")
    assert '<details class="long"><summary>300,000 characters</summary><pre>' in source
    assert "x" * 300_000 in source


def test_an_export_of_no_conversation_is_a_page(written: Written) -> None:
    assert "0 conversations" in written("html")
