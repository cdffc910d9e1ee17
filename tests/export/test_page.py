"""The HTML page is self-contained and harmless whatever the messages contain."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from hermes.export.html_page import render_text
from hermes_state import SessionDB
from tests.export.conftest import Written, compressed, talk

HOSTILE = (
    "</script></style><img src=x onerror=alert(1)><script>alert(2)</script> \x1b[2J\0 \u202e \" ' &amp; `<b>`"
)
ALLOWED = {"p", "pre", "code", "h3", "strong"}


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
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


@given(
    st.lists(
        st.sampled_from(
            ["`", "``", "```", "\n", "\n\n", "**", "<b>", "&", '"', "# ", "~~~", "a", "x y", "</pre>"]
        )
    ).map("".join)
)
def test_what_was_said_makes_no_tags_but_ours_and_they_are_closed(said: str) -> None:
    read = Tags(render_text(said))
    assert {tag for tag, _ in read.tags} <= ALLOWED
    assert read.depth == 0
    labels = [told.get("data-language") or "" for _, told in read.tags]
    assert "<b>" not in said or "<b>" in read.text + "".join(labels)


def test_code_headings_and_marks_are_shown() -> None:
    assert render_text("# Hi\n\nsome `code` and **more**\nnext\n\n```py\na < b\n```") == (
        "<h3>Hi</h3><p>some <code>code</code> and <strong>more</strong>\nnext</p>"
        '<pre data-language="py"><code>a &lt; b</code></pre>'
    )


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


def test_no_conversation_is_a_page_too(written: Written) -> None:
    assert "0 conversations" in written("html")
