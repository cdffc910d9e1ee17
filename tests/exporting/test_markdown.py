"""Markdown: a document per conversation that reads well, and out of which nothing that was said can break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hermes.exporting.containing import contained
from hermes.exporting.markdown import fenced
from hermes_state import SessionDB
from tests.exporting.conftest import Written, compressed, talk

COMMONMARK = MarkdownIt("commonmark")

PIECES = [
    *("`", "``", "```", "````", "~~~", "~~~~", "#", "## ", "# x", "===", "---", "- ", "1. ", "> ", "\t", "    "),
    *(" ", "\n", "\n\n", "<b>", "</details>", "<!--", "<script>", "<?", "a", "\\", "\\`", "*", "|", "[x]: y"),
    *("\n```\n", "\n~~~\n", "\n   ```\n", "\n- ```\n", "\n> ```\n", "text", "\n- a\n\n  ```\n  b\n"),
]  # fmt: skip


def headings(tokens: list[Token]) -> list[str]:
    """Headings of the document itself, of the two highest levels."""
    at = [i for i, one in enumerate(tokens) if one.type == "heading_open" and one.level == 0]
    return [tokens[i + 1].content for i in at if tokens[i].tag in ("h1", "h2")]


def has_html(tokens: list[Token]) -> bool:
    inside = [child for token in tokens for child in token.children or []]
    return any(one.type in ("html_block", "html_inline") for one in [*tokens, *inside])


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_nothing_breaks_out_of_its_place(said: str) -> None:
    tokens = COMMONMARK.parse(f"## before\n\n{contained(said)}\n\n## after\n")
    assert headings(tokens) == ["before", "after"]
    assert not has_html(tokens)


@given(st.text(alphabet="`~ab\n", max_size=40))
def test_a_fence_holds_whatever_is_in_it(said: str) -> None:
    tokens = COMMONMARK.parse(f"{fenced(said)}\n\n## after\n")
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
def test_what_stays_in_its_place_is_not_changed(said: str) -> None:
    assert contained(said) == said


def test_a_document_tells_who_said_what_and_when(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "What is *this*?"), ("assistant", "# That\n\nA thing."), model="some/model")
    db.set_session_title("a", "Things <3 [x]")
    document = written("md", "a")
    assert document.startswith("# Things \\<3 \\[x\\]\n\n- **Source:** cli · some/model\n")
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


def test_what_was_taken_back_is_not_told(db: SessionDB, written: Written) -> None:
    said = talk(db, "a", ("user", "kept"), ("user", "regretted"))
    db.rewind_to_message("a", said[1])
    assert "kept" in written("md", "a")
    assert "regretted" not in written("md", "a")


def test_no_escape_sequence_reaches_whoever_prints_it(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "a\x1b[2Jb\x1b]0;title\x07\x9b31m\0c\u202e"), ("tool", "\x1b[31mred"))
    document = written("md", "a")
    assert not set(document) & set("\x1b\x07\x9b\0\u202e")


def test_several_documents_are_ruled_off(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "one"))
    talk(db, "b", ("user", "two"))
    documents = written("md", "a", "b").split("\n---\n\n")
    assert [document.splitlines()[0] for document in documents] == ["# one", "# two"]
