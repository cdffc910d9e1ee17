"""The address of every link in a terminal is visible."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hermes.chat.view.link_support import can_click
from hermes.chat.view.markdown_view import make_markdown
from hermes.chat.view.screen import Screen
from hermes.text import show_target


def shown(markdown: str, width: int = 300) -> str:
    """Return the visible text of an answer."""
    written = io.StringIO()
    screen = Screen(Console(file=written, width=width, force_terminal=True, color_system="truecolor"))
    screen.print_markdown(markdown)
    plain = re.sub(r"\x1b\][^\x1b\x07]*(?:\x1b\\|\x07)|\x1b\[[\d;]*m", "", written.getvalue())
    return "\n".join(line.rstrip() for line in plain.rstrip().split("\n"))


@pytest.fixture(params=["clickable", "not clickable"], autouse=True)
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test twice: in a terminal with links and in a terminal without links."""
    monkeypatch.setenv("FORCE_HYPERLINK", "1" if request.param == "clickable" else "0")


@pytest.mark.parametrize(
    ("markdown", "seen"),
    [
        ("[paypal.com](https://evil.example)", "paypal.com (https://evil.example)"),
        ("[https://paypal.com](https://evil.example)", "https://paypal.com (https://evil.example)"),
        ("[the docs](https://example.com/docs 'title')", 'the docs (https://example.com/docs "title")'),
        ("[**bold** `code`](https://example.com)", "bold code (https://example.com)"),
        (
            "see [it][1].\n\n[1]: https://evil.example/x",
            "see it[1] (https://evil.example/x).\n\n[1]: https://evil.example/x",
        ),
        (
            "[it][] [it]\n\n[it]: https://x.example",
            "it (https://x.example) it (https://x.example)\n\n[it]: https://x.example",
        ),
        ("[a][1] and [x][y]\n\n[1]: /z", "a[1] (/z) and [x][y]\n\n[1]: /z"),
        ("[x](https://paypal.com@evil.example/)", "x (https://evil.example/)"),
        ("<https://paypal.com@evil.example/>", "https://paypal.com@evil.example/ (https://evil.example/)"),
        ("[раураl.com](https://раураl.com)", "раураl.com (https://xn--l-7sba6dbr.com)"),
        ("[pay\u200bpal.com](https://paypal.com)", "pay\u200bpal.com (https://paypal.com)"),
        ("[ann@x.example](mailto:bob@x.example)", "ann@x.example (mailto:bob@x.example)"),
        ("[https://x.example](http://x.example)", "https://x.example (http://x.example)"),
        ("[x](/relative)", "x (/relative)"),
    ],
)
def test_a_target_that_differs_is_shown(markdown: str, seen: str) -> None:
    assert shown(markdown) == seen


@pytest.mark.parametrize(
    ("markdown", "seen"),
    [
        ("<https://example.com/a>", "https://example.com/a"),
        ("[example.com](https://example.com/)", "example.com"),
        ("[Example.com/ä](https://example.com/%C3%A4)", "Example.com/ä"),
        ("<ann@x.example>", "ann@x.example"),
        ("`[a](b)` and [not a link] (x)", "[a](b) and [not a link] (x)"),
    ],
)
def test_a_target_that_the_text_says_is_not_repeated(markdown: str, seen: str) -> None:
    assert shown(markdown) == seen


def test_links_are_shown_in_lists_tables_and_headings() -> None:
    link = "[a](https://b.example)"
    for markdown in (f"- {link}", f"# {link}", f"> {link}", f"| x |\n|---|\n| {link} |"):
        assert "a (https://b.example)" in shown(markdown)


def test_pictures_show_where_they_are() -> None:
    assert "(https://evil.example/x.png)" in shown("![a cat](https://evil.example/x.png)")
    assert "(https://evil.example)" in shown("[![a cat](https://x.example/x.png)](https://evil.example)")


def test_a_long_target_never_hides_its_host() -> None:
    long = "a" * 300
    assert ".evil.example/" in show_target(f"https://paypal.com.{long}.evil.example/{long}")
    assert show_target(f"https://{long}@evil.example/") == "https://evil.example/"
    assert len(show_target(f"https://{long}/{long}?{long}")) < 250


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_target_is_plain_ascii_whatever_it_is(text: str, target: str) -> None:
    assert re.fullmatch(r"[!-~…]*", show_target(target))
    make_markdown(f"[{text}]({target}) <{target}> ![{text}]({target})")


@pytest.mark.parametrize(
    ("environment", "clickable"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4803"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, True),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600", "TMUX": "/tmp/tmux-0/default,1,0"}, False),
        ({"TERM": "tmux-256color", "FORCE_HYPERLINK": "1"}, True),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "0"}, False),
    ],
)
def test_a_terminal_with_links_is_known(environment: dict[str, str], clickable: bool) -> None:
    assert can_click(environment) == clickable


def test_without_support_for_links_the_whole_address_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"https://docs.example/{'path/' * 60}page.html?query=1#part"
    written = io.StringIO()
    for forced, is_whole in (("0", True), ("1", False)):
        monkeypatch.setenv("FORCE_HYPERLINK", forced)
        assert (f"the docs ({address})" in shown(f"[the docs]({address})", width=600)) == is_whole
        screen = Screen(Console(file=written, width=600, force_terminal=True, color_system="truecolor"))
        screen.print_markdown("[the docs](https://docs.example)")
        assert ("\x1b]8;" in written.getvalue()) != is_whole
