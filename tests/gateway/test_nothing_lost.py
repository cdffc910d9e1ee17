"""Messages on platforms lose no visible character. HTML is shown as text."""

from __future__ import annotations

from hypothesis import example, given

from hermes.gateway.platforms.matrix import formatting as matrix_formatting
from hermes.gateway.platforms.telegram import formatting as telegram_formatting
from tests.gateway.telegram_markup import parsed
from tests.rendered_texts import TEXTS, assert_shows, text_in


@given(TEXTS)
@example("```python title=x.py\nprint()\n```")
@example("a &amp; b")
def test_telegram_shows_a_text_whole(text: str) -> None:
    html = telegram_formatting.render_html(text)
    parsed(html)
    assert_shows(text, text_in(html), marks="|")  # two of these characters mark a spoiler


@given(TEXTS)
def test_matrix_shows_a_text_whole(text: str) -> None:
    assert_shows(text, text_in(matrix_formatting.render_html(text)))


def test_lines_stay_lines() -> None:
    assert text_in(telegram_formatting.render_html("one\ntwo")) == "one\ntwo"
    assert text_in(matrix_formatting.render_html("one\ntwo")).split() == ["one", "two"]
    assert "<br" in matrix_formatting.render_html("one\ntwo")
