"""Reasoning is separated from the answer, at whatever points the stream is split into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.reasoning import Piece, ReasoningSplitter, Recast, join_pieces, split_reasoning

TEXTS = st.lists(
    st.sampled_from(
        [
            *"<think> </think> <thinking> </thinking> <THOUGHT> </thought> <th < ink> </ a word List<String>".split(),
            *("\n", "\n\n", " ", "  ", "`<think>`", "\u3042", "`", "``", "```", "~~~", "`</think>`", "\\"),
        ]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("plain", "", "plain"),
        ("  indented\n", "", "  indented\n"),
        ("<think>a</think>b", "a", "b"),
        ("\n<think>\na\n</think>\n\n    code\n", "\na\n", "    code\n"),
        ("<Thinking>a</tHinking>b", "a", "b"),
        ("<think>a</think>\n<think>b</think> c", "a\n\nb", " c"),
        ("<think>never closed\n\nand on", "never closed\n\nand on", ""),
        ("<think>a</thin", "a</thin", ""),
        ("<think>a</thinking>b</think>c", "a</thinking>b", "c"),
        ("<think></think>b", "", "b"),
        ("Use `<think>` tags: <think>like so</think>", "", "Use `<think>` tags: <think>like so</think>"),
        ("<thinker>a</thinker>", "", "<thinker>a</thinker>"),
        ("<thi", "", "<thi"),
        ("", "", ""),
    ],
)
def test_only_a_block_at_the_beginning_is_reasoning(text: str, reasoning: str, answer: str) -> None:
    assert split_reasoning(text) == (reasoning, answer)


@given(TEXTS, st.lists(st.integers(0, 60)))
def test_the_pieces_of_a_stream_make_no_difference(text: str, places: list[int]) -> None:
    cuts = sorted({0, len(text), *(place for place in places if place < len(text))})
    splitter = ReasoningSplitter()
    pieces: list[Piece | Recast] = []
    for start, end in pairwise(cuts):
        pieces += splitter.add(text[start:end])
    pieces += splitter.end()
    assert join_pieces(pieces) == split_reasoning(text)
    assert all(piece.text for piece in pieces if isinstance(piece, Piece))
    assert sum(isinstance(piece, Recast) for piece in pieces) <= 1


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("plan…</think> answer", "plan…", " answer"),
        ("a plan\n</think>\n\n    code\n", "a plan\n", "    code\n"),
        ("one\n\ntwo.</THINKING>three", "one\n\ntwo.", "three"),
        ("</think>\n\nhello", "", "hello"),
        ("a\n  </think> b", "a\n  ", " b"),
        ("a</think>\n<think>b</think>c", "a\n\nb", "c"),
        ("a</think>b</think>c", "a", "b</think>c"),
        ("I close with </think> later.\n</think>\nb", "I close with </think> later.\n", "b"),
        ("what `x` does.</think>b", "what `x` does.", "b"),
        ("a lonely ` here\n\n</think>\nb", "a lonely ` here\n\n", "b"),
        ("```\ncode\n```\ndone\n</think>\nb", "```\ncode\n```\ndone\n", "b"),
        ("only this\n</think>", "only this\n", ""),
    ],
)
def test_a_closing_tag_alone_ends_reasoning(text: str, reasoning: str, answer: str) -> None:
    assert split_reasoning(text) == (reasoning, answer)


@pytest.mark.parametrize(
    "text",
    [
        "the `</think>` tag",
        "the ``a ` </think>`` tag",
        "the `tag\n</think>` ends",
        "Models write </think> before they answer.",
        "They end with </think>\nand then answer.",
        'It sends "</think>" alone.',
        "It sends (</think>) or **</think>** or \\</think>.",
        "- </think> closes it",
        "| </think> | closes |",
        "```\n</think>\n```\ncloses",
        "~~~ xml\na</think>\n~~~",
        "- ```\n  a</think>\n  ```",
        "example:\n\n    </think>\n\ncloses",
        "x <think>a</think> b",
        '<reasoning effort="high">a</reasoning>',
        "a</thinker>b",
    ],
)
def test_a_tag_in_a_sentence_or_in_code_is_text(text: str) -> None:
    assert split_reasoning(text) == ("", text)


@given(
    st.lists(
        st.sampled_from(["a", "b.", " ", "\n", "\n\n", "x</think>", "\n</think>\n", "</thought>"]), max_size=9
    )
)
def test_code_is_never_reasoning(parts: list[str]) -> None:
    inside = "".join(parts)
    fenced = f"See:\n\n```\n{inside}\n```\nand on"
    assert split_reasoning(fenced) == ("", fenced)
    inline = f"see `{inside.replace(chr(10), ' ')} ` and on"
    assert split_reasoning(inline) == ("", inline)


@given(TEXTS, TEXTS)
def test_the_text_after_the_tag_is_the_answer(before: str, after: str) -> None:
    """Together, the reasoning and the answer contain the whole text in order, except for the tags and the
    blank lines around them."""
    text = f"{before}\n</think>\n{after}"
    parted = split_reasoning(text)
    assert text.endswith(parted.answer.lstrip("\n"))


@given(TEXTS)
def test_every_word_is_in_the_reasoning_or_in_the_answer(text: str) -> None:
    parted = split_reasoning(text)
    kept = iter(parted.reasoning + parted.answer)
    words = text.casefold()
    for tag in ("<think>", "</think>", "<thinking>", "</thinking>", "<thought>", "</thought>"):
        words = words.replace(tag, " ")
    assert all(char in map(str.casefold, kept) for char in "".join(words.split()))


@pytest.mark.parametrize("unit", ["`</think>` ", "```\n</think>\n```\n", "a </think> ", "\\``a "])
def test_a_text_full_of_tags_is_split_as_quickly_as_any_other(unit: str) -> None:
    """If every tag were compared with the whole text, the test would take hours."""
    text = unit * 50_000 + "</think>"
    assert split_reasoning(text) == ("", text)
    splitter = ReasoningSplitter()
    for start in range(0, len(text), 1000):
        splitter.add(text[start : start + 1000])
