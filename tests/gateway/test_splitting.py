"""A long answer is split into parts. Every part fits, only whitespace is lost, and Markdown stays valid."""

from __future__ import annotations

import re
from itertools import pairwise

import apsw.unicode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.outbound.splitting import Measure, fit_beginning, split_pieces, split_text


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def utf8(text: str) -> int:
    return len(text.encode())


MEASURES = st.sampled_from((len, utf16, utf8))

WORDS = st.sampled_from(
    [
        "one",
        "Two.",
        "drei!",
        "日本語。",
        "これは？",
        "e\u0301",
        "👨‍👩‍👧",
        "🇩🇪🇫🇷",
        "a" * 40,
        "`in code`",
        "\\*",
        "**bold it**",
        "[a link](https://example.org/a_(b))",
        "https://example.org/x",
        "1.",
        "#",
        "|",
        "नमस्ते",
        "ü",
        "\u00a0",
        "&amp;",
    ]
)
LINE = st.lists(WORDS, max_size=12).map(" ".join)
CODE = st.builds(
    lambda lead, mark, info, lines: "\n".join(
        f"{lead}{line}" for line in (f"{mark}{info}", *lines, mark[:1] * len(mark))
    ),
    st.sampled_from(["", "  ", "> "]),
    st.sampled_from(["```", "````", "~~~"]),
    st.sampled_from(["", "py", "c++ title=x"]),
    st.lists(
        st.sampled_from(["x = 1", "", "    return  0", "# no heading", "- no item", "| a |", "y" * 50]),
        max_size=9,
    ),
)
TABLE = st.lists(st.sampled_from(["| 1 | 2 |", "| long cell here | b |"]), min_size=1, max_size=9).map(
    lambda rows: "\n".join(("| a | b |", "|---|:-:|", *rows))
)
ITEMS = st.lists(LINE, min_size=1, max_size=5).map(lambda lines: "\n".join(f"- {line}" for line in lines))
BLOCK = st.one_of(LINE, CODE, TABLE, ITEMS, LINE.map("## {}".format), LINE.map("> {}".format), st.just("   "))
MARKDOWN = st.builds(
    lambda blocks, gap: gap.join(blocks),
    st.lists(BLOCK, max_size=8),
    st.sampled_from(["\n\n", "\n", "\n \n\n"]),
)
ROUGH = st.text(alphabet=st.sampled_from("ab .。!\n\n`~|-#>[]()\\* \t\r👨‍👩🇩e\u0301"), max_size=300)
ANY = MARKDOWN | ROUGH | st.text(max_size=100)
LONGEST = st.integers(4, 200)
LARGE = st.integers(100, 400)


@given(ANY, LONGEST, MEASURES)
def test_every_part_fits_and_none_is_empty(text: str, longest: int, measure: Measure) -> None:
    for part in split_text(text, longest, measure):
        assert measure(part) <= longest
        assert part.strip()


@given(ANY, LONGEST, MEASURES)
def test_only_whitespace_is_missing_in_the_parts(text: str, longest: int, measure: Measure) -> None:
    """Without the added text, the parts are slices of the original text, in order. Only whitespace is missing
    between them."""
    at = 0
    for piece in split_pieces(text, longest, measure):
        found = text.index(piece.body, at)
        assert not text[at:found].strip()
        at = found + len(piece.body)
    assert not text[at:].strip()


@given(ANY, LONGEST, MEASURES)
def test_a_part_repeats_only_the_frame_that_was_cut(text: str, longest: int, measure: Measure) -> None:
    """A code fence that is closed at the end of a part is opened again in the next part, with its original
    opening line."""
    found = split_pieces(text, longest, measure)
    for earlier, later in pairwise(found):
        if earlier.after:
            assert later.before
        if later.before:
            assert text.find(re.sub(r"^[ >]*", "", later.before.split("\n")[0])) >= 0
    assert not found or not found[0].before


@given(ANY, MEASURES)
def test_a_text_that_fits_is_one_part_as_it_is(text: str, measure: Measure) -> None:
    assert split_text(text, max(1, measure(text)), measure) == ([text] if text.strip() else [])


def open_fence(text: str) -> str | None:
    """Return the mark of the code fence that is open at the end of a text, by CommonMark's rules."""
    mark = None
    for line in text.split("\n"):
        bare = re.sub(r"^[ \t>]*", "", line).rstrip()
        run = re.match(r"`{3,}|~{3,}", bare)
        if run and mark is None and not (bare.startswith("`") and "`" in bare[run.end() :]):
            mark = run[0]
        elif run and mark and bare == run[0] and run[0].startswith(mark):
            mark = None
    return mark


@given(MARKDOWN, LARGE, MEASURES)
def test_fences_are_balanced_in_every_part(text: str, longest: int, measure: Measure) -> None:
    for part in split_text(text, longest, measure):
        assert open_fence(part) is None


@given(MARKDOWN, LARGE, MEASURES)
def test_every_row_of_a_table_has_a_head_in_its_part(text: str, longest: int, measure: Measure) -> None:
    plain = "\n\n".join(block for block in text.split("\n\n") if "```" not in block and "~~~" not in block)
    for part in split_text(plain, longest, measure):
        rows = [line for line in part.split("\n") if line in ("| 1 | 2 |", "| long cell here | b |")]
        assert not rows or "|---|:-:|" in part


@given(MARKDOWN, st.integers(1, 300), MEASURES)
def test_a_beginning_is_whole_and_fits(text: str, cut: int, measure: Measure) -> None:
    visible = fit_beginning(text[:cut], 120, measure)
    assert measure(visible) <= 120
    assert open_fence(visible) is None


@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "é",
                "e\u0301\u0323",
                "👨‍👩‍👧‍👦",
                "👍🏽",
                "🇩🇪",
                "한국",
                "한",
                "क्षि",
                "नी",
                "ก็",
                "1️⃣",
                "❤️",
                "ﾊﾟ",
                "日",
            ]
        ),
        min_size=1,
        max_size=120,
    ),
    st.integers(30, 80),
    MEASURES,
)
def test_a_visible_character_is_never_cut(characters: list[str], longest: int, measure: Measure) -> None:
    text = "".join(characters)
    ends = {0}
    while (last := max(ends)) < len(text):
        ends.add(apsw.unicode.grapheme_next_break(text, last))
    at = 0
    for part in split_text(text, longest, measure):
        at += len(part)
        assert at in ends


@pytest.mark.parametrize(
    ("text", "longest", "parts"),
    [
        ("first words\n\nsecond words", 20, ["first words", "second words"]),
        ("one\n\n- two\n- three\n\nfour", 20, ["one\n\n- two\n- three", "four"]),
        ("- one and a half\n\n- two\n- three", 25, ["- one and a half", "- two\n- three"]),
        ("- one\n- two\n  more\n- three", 22, ["- one\n- two\n  more", "- three"]),
        ("line one\nline two\nline three", 20, ["line one\nline two", "line three"]),
        ("One two. Three four? Five six", 22, ["One two. Three four?", "Five six"]),
        ("これは一つ。これは二つ！これは三つ", 12, ["これは一つ。これは二つ！", "これは三つ"]),
        ("many words in a row", 10, ["many words", "in a row"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("see [this link](http://x.y/z) now", 30, ["see [this link](http://x.y/z)", "now"]),
        ("do see the [this link](http://x.y/z)", 30, ["do see the", "[this link](http://x.y/z)"]),
        ("run it with `a b c d` please", 18, ["run it with", "`a b c d` please"]),
        ("a\\*b", 3, ["a\\*", "b"]),
        ("Some text.\n\n# Next\n\nWords here", 24, ["Some text.", "# Next\n\nWords here"]),
        ("Year 1.\n1. first item 2. x", 20, ["Year 1.", "1. first item 2. x"]),
    ],
)
def test_a_text_is_cut_at_natural_places(text: str, longest: int, parts: list[str]) -> None:
    assert split_text(text, longest) == parts


def test_a_fence_that_is_cut_is_closed_and_opened_again_with_its_language() -> None:
    text = "Look:\n```python\nx = 1\n\ny = 2\nz = 3\n```\nDone."
    assert split_text(text, 30) == ["Look:\n```python\nx = 1\n```", "```python\ny = 2\nz = 3\n```", "Done."]


def test_a_fence_inside_of_another_is_its_text() -> None:
    text = "````md\n```py\nx\n```\n" + "more\n" * 6 + "````"
    first, second = split_text(text, 40)
    assert first.startswith("````md\n```py\nx\n```\n")
    assert first.endswith("\n````")
    assert second.startswith("````md\nmore")


def test_code_keeps_its_indentation_and_its_empty_lines() -> None:
    code = "\n".join(f"    line {number}" for number in range(8))
    parts = split_text(f"```\n{code}\n```", 60)
    inside = [part.removeprefix("```\n").removesuffix("\n```") for part in parts]
    assert "\n".join(inside) == code
    assert len(parts) == 2  # as full as possible


def test_code_that_fits_into_a_part_of_its_own_is_not_cut() -> None:
    code = "```\n" + "x = 1\n" * 10 + "```"
    assert split_text(f"{'Words. ' * 8}\n\n{code}", 100) == [("Words. " * 8).strip(), code]


def test_a_fence_in_a_quote_stays_in_the_quote() -> None:
    parts = split_text("> ```sh\n> ls one\n> ls two\n> ls three\n> ```", 35)
    assert parts == ["> ```sh\n> ls one\n> ls two\n> ```", "> ```sh\n> ls three\n> ```"]


def test_an_unclosed_fence_is_closed_in_every_part() -> None:
    parts = split_text("```\n" + "word\n" * 20, 40)
    assert all(open_fence(part) is None for part in parts)
    assert fit_beginning("Look:\n```py\nx = ", 100) == "Look:\n```py\nx =\n```"


def test_a_table_that_is_cut_has_its_head_again() -> None:
    head = "| name | size |\n|------|------|\n"
    rows = [f"| n{number} | {number} |" for number in range(8)]
    parts = split_text(head + "\n".join(rows), 80)
    assert len(parts) > 1
    assert all(part.startswith(head) for part in parts)
    assert [row for part in parts for row in part.removeprefix(head).split("\n")] == rows


def test_a_frame_for_which_there_is_no_room_is_not_kept() -> None:
    text = f"```{'long' * 20}\ncode\n```"
    assert all(len(part) <= 20 for part in split_text(text, 20))


def test_a_table_inside_of_code_is_code() -> None:
    text = "```\n| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 9 + "```"
    parts = split_text(text, 70)
    assert len(parts) > 1
    assert all(part.startswith("```\n") and part.endswith("\n```") for part in parts)
    assert "".join(parts).count("---|---") == 1


def test_a_flag_is_not_cut_in_two() -> None:
    assert split_text("🇩🇪" * 5, 5) == ["🇩🇪🇩🇪", "🇩🇪🇩🇪", "🇩🇪"]


def test_a_length_function_that_is_not_additive_is_respected() -> None:
    def with_a_surcharge(text: str) -> int:
        return len(text) + 60 * text.endswith("x")

    text = " ".join(["word", "six"] * 40)
    parts = split_text(text, 100, with_a_surcharge)
    assert all(with_a_surcharge(part) <= 100 for part in parts)
    assert " ".join(parts) == text


@pytest.mark.parametrize(
    "unit",
    [
        "\n",
        "a\n",
        "`",
        "``a`b",
        "[",
        "[a](",
        ".",
        "。",
        "a",
        "\\",
        "|-|\n|a|\n",
        "```\n",
        "~~~x\n",
        "**a",
        "- a\n",
        "a \n",
        "<a:",
        "a\n\n",
        "# a\n",
        "\u0301",
        "🇩",
        "&",
        "http://",
        "a" + "\n" * 5000,
        "a" + " " * 5000,
    ],
)
def test_the_work_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    """The work is measured in calls of the length function and in the size of their arguments. Both do not
    depend on the machine."""
    asked = 0

    def measure(text: str) -> int:
        nonlocal asked
        asked += len(text)
        return len(text)

    text = (unit * 100_000)[:100_000]
    split_text(text, 1000, measure)
    assert asked <= 60 * len(text)
