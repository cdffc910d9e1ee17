"""Text normalisation: which characters are changed when text is stored or shown, and which are not."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.text import (
    clean_replay,
    extract_searchable_text,
    extract_tool_call_text,
    has_lone_surrogates,
    make_preview,
    make_printable,
    replace_surrogates,
)

ANY_TEXT = st.text(
    alphabet=st.characters(exclude_categories=()) | st.sampled_from("\ud800\udfff\x1b[]m\x9b;0\\\a")
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("plain", "plain"),
        ("a\0b\x1b\u2028\ufeff", "a\0b\x1b\u2028\ufeff"),
        ("日本\ud800語", "日本\ufffd語"),
        ("\udc00", "\ufffd"),
        ("x\ud83d", "x\ufffd"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_lone_surrogates_become_the_replacement_character_and_nothing_else_changes(
    given: str, kept: str
) -> None:
    assert replace_surrogates(given) == kept
    assert has_lone_surrogates(given) == (given != kept)


@given(ANY_TEXT)
def test_clean_text_can_be_encoded_and_is_clean(text: str) -> None:
    clean = replace_surrogates(text)
    clean.encode()
    assert replace_surrogates(clean) is clean
    assert not has_lone_surrogates(clean)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("as it is\n", "as it is\n"),
        ([], ""),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], ""),
        (
            [{"type": "image_url", "image_url": {"url": "https://ex.org/a.png", "w": 3}}],
            "https://ex.org/a.png",
        ),
        ({"b": ["x", {"c": "y"}], "a": "z", "n": 1, "t": True}, "x\ny\nz"),
        ([{"type": {"text": "inner"}}], "inner"),
        (["\ud800"], "\ufffd"),
        (5, ""),
    ],
)
def test_text_of_content(content: Any, text: str) -> None:
    assert extract_searchable_text(content) == text


CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py", "n": 42}'}}
]


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (None, ""),
        ([], ""),
        (CALLS, "id\nc1\ntype\nfunction\nfunction\nname\nread\narguments\npath\na.py\nn\n42"),
        ([{"arguments": "not json"}], "arguments\nnot json"),
        ([{"arguments": "{broken"}], "arguments\n{broken"),
        ([{"arguments": '"a string"'}], 'arguments\n"a string"'),
        ([{"arguments": "{}"}], "arguments"),
        ([{"arguments": {"x": [1.5, True, None]}}], "arguments\nx\n1.5"),
        ([{"arguments": '{"x": "\\ud800"}'}], "arguments\nx\n\ufffd"),
        ("[broken", "[broken"),
    ],
)
def test_text_of_tool_calls(calls: Any, text: str) -> None:
    assert extract_tool_call_text(calls) == text


def test_tool_calls_may_still_be_json() -> None:
    assert extract_tool_call_text(json.dumps(CALLS)) == extract_tool_call_text(CALLS)


def test_content_may_be_nested_to_any_depth() -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    assert extract_searchable_text(deep) == extract_tool_call_text(deep) == make_preview(deep) == "bottom"
    assert extract_tool_call_text([{"arguments": "[" * 100_000}]).startswith("arguments\n[[[")


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        (None, None),
        ("", ""),
        ([], ""),
        ("short", "short"),
        ("one\r\ntwo\nthree", "one  two three"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ("x" * 1000, "x" * 60 + "..."),
        ("  " + "x" * 60, "x" * 60),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one two"),
        ([{"type": "text", "text": "x" * 70}], "x" * 60 + "..."),
        ("a\ud800", "a\ufffd"),
    ],
)
def test_preview(content: Any, preview: str | None) -> None:
    assert make_preview(content) == preview


def test_the_time_of_a_preview_does_not_depend_on_the_size() -> None:
    huge: Any = ["x" * 13_000_000, *["y"] * 1_000]
    started = time.process_time()
    for _ in range(100):
        make_preview(huge)
        make_preview(huge[0])
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\nb\r\nc\td\u2028e", "a b c d e"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://ex.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;never closed", "52;c;never closed"),
        ("\x9b31mred\x90secret\x9cok", "redok"),
        ("\x1bcreset\x1b(Bset", "resetset"),
        ("bell\a\b\x7f\x85.", "bell ."),
        ("evil\u202egnp.exe\u2066x\u2069", "evilgnp.exex"),
        ("👩\u200d💻 日本", "👩\u200d💻 日本"),
        ("\ud800", "\ufffd"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert make_printable(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("cafe\u0301s", 5, "cafe\u0301s"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("x" * 13_000_000, 3, "xx…"),
    ],
)
def test_printable_fits_a_width(text: str, limit: int, shown: str) -> None:
    assert make_printable(text, width_limit=limit) == shown


@given(ANY_TEXT, st.none() | st.integers(0, 40))
def test_printed_text_has_no_control_sequences(text: str, limit: int | None) -> None:
    visible = make_printable(text, width_limit=limit)
    visible.encode()
    assert all(ord(char) >= 32 and not 0x7F <= ord(char) < 0xA0 for char in visible)
    assert not set(visible) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    assert make_printable(visible, width_limit=limit) == visible


NOTE = "[System note: The following is recalled memory context, NOT new user input.]"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("  said \n", "said"),
        ("about memory alone", "about memory alone"),
        ("before <memory-context>\nrecalled\n</memory-context> after", "before  after"),
        ("<MEMORY-Context>x</memory-CONTEXT>said", "said"),
        ("<memory-context>a</memory-context>b<memory-context>c</memory-context>", "b"),
        (f"{NOTE}\n\nsaid", "said"),
        (f"<memory-context>\n{NOTE}\nfacts\n</memory-context>\n\nsaid", "said"),
        ("stray </memory-context> tag", "stray  tag"),
        ("open <memory-context> only", "open  only"),
        ("[System note: something else] memory", "[System note: something else] memory"),
        ("", ""),
    ],
)
def test_replayed_text_is_free_of_injected_memory(text: str, clean: str) -> None:
    assert clean_replay(text) == clean


def test_many_open_fences_take_no_time() -> None:
    started = time.process_time()
    assert clean_replay("<memory-context>" * 50_000 + "x") == "x"
    assert time.process_time() - started < 2
