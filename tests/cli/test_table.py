"""Tables fit into the terminal, whatever text they contain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.io.text_columns import format_table, measure_text, widen_columns
from hermes.cli.sessions.list import PLAIN_COLUMNS, TITLED_COLUMNS

CELL = st.text(alphabet=st.sampled_from("abc 世界🍜é\u0301ก"), max_size=80)
ID = st.text("0123456789_ab", min_size=24, max_size=24)
ROWS = st.lists(st.tuples(CELL, CELL, st.just("yesterday"), ID), min_size=1)


@given(rows=ROWS, width=st.integers(56, 250))
def test_with_titles_no_line_is_wider_than_the_terminal_and_ids_are_whole(
    rows: list[tuple[str, ...]], width: int
) -> None:
    lines = list(format_table(widen_columns(TITLED_COLUMNS, rows, width), rows, width))
    assert all(measure_text(line) <= width for line in lines)
    assert [line.split()[-1] for line in lines[2:]] == [row[-1] for row in rows]


@given(rows=ROWS, width=st.integers(62, 250))
def test_without_titles_no_line_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    cells = [(row[0], row[2], "telegram", row[3]) for row in rows]
    lines = list(format_table(widen_columns(PLAIN_COLUMNS, cells, width), cells, width))
    assert all(measure_text(line) <= width for line in lines)
    assert [line.split()[-1] for line in lines[2:]] == [row[-1] for row in cells]


def test_a_long_title_does_not_cut_the_previews_of_the_documents_at_a_hundred_columns() -> None:
    preview = "Help me refactor the auth module please"
    rows = [
        ("schema migration, in one step", preview, "yesterday", "20250305_091523_a1b2c3d4"),
        ("refactoring auth", preview, "2h ago", "20250304_143022_e5f6a7b8"),
    ]
    lines = list(format_table(widen_columns(TITLED_COLUMNS, rows, 100), rows, 100))
    assert all(preview in line for line in lines[2:])
    assert lines[2].startswith("schema migration, in ")
    whole = list(format_table(widen_columns(TITLED_COLUMNS, rows, 112), rows, 112))
    assert "schema migration, in one step" in whole[2]
    assert all(preview in line for line in whole[2:])
