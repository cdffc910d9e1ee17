"""Reasoning is told apart from the answer, wherever a stream was cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.reasoning import ReasoningSplitter, split_reasoning

TEXTS = st.lists(
    st.sampled_from(
        [
            *"<think> </think> <thinking> </thinking> <THOUGHT> </thought> <th < ink> </ a word List<String>".split(),
            *("\n", "\n\n", " ", "  ", "`<think>`", "\u3042"),
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
def test_the_cuts_of_a_stream_make_no_difference(text: str, places: list[int]) -> None:
    cuts = sorted({0, len(text), *(place for place in places if place < len(text))})
    splitter = ReasoningSplitter()
    pieces = []
    for start, end in pairwise(cuts):
        pieces += splitter.add(text[start:end])
    pieces += splitter.end()
    assert (
        "".join(piece.text for piece in pieces if piece.is_reasoning),
        "".join(piece.text for piece in pieces if not piece.is_reasoning),
    ) == split_reasoning(text)
    assert all(piece.text for piece in pieces)


@given(TEXTS)
def test_no_word_is_in_neither(text: str) -> None:
    parted = split_reasoning(text)
    kept = iter(parted.reasoning + parted.answer)
    words = text.casefold()
    for tag in ("<think>", "</think>", "<thinking>", "</thinking>", "<thought>", "</thought>"):
        words = words.replace(tag, " ")
    assert all(char in map(str.casefold, kept) for char in "".join(words.split()))
