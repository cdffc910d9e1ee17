"""Any text in a message is returned unchanged, can be found, and never breaks a session."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.stored_rows import change_rows

AWKWARD: dict[str, tuple[Any, str | None]] = {
    "nul": ("before\0after nulword", "nulword"),
    "starts with nul": ("\0leading startword", "startword"),
    "only nul": ("\0", None),
    "controls": ("".join(map(chr, range(1, 32))) + "\x7f controlword", "controlword"),
    "c1 controls": ("".join(map(chr, range(0x80, 0xA0))) + " highword", "highword"),
    "line separators": ("one\u2028two\u2029three\x85four sepword", "sepword"),
    "returns": ("a\r\nb\rc\nd returnword", "returnword"),
    "looks structured": ('\0json:["not", "structured", "fakeword"]', "fakeword"),
    "looks broken": ("\0json:{broken brokenword", "brokenword"),
    "structured": (
        [{"type": "text", "text": "listword\0\u2028"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
        "listword",
    ),
    "dict": ({"text": "dictword", "n": [1, 2.5, None, True]}, "dictword"),
    "empty": ("", None),
    "blank": ("   \n\t ", None),
    "byte order mark": ("\ufeffmarkword", "markword"),
    "direction": ("\u202eright\u202c bidiword", "bidiword"),
    "astral": ("𠮷 👩‍👩‍👧 astralword", "astralword"),
    "not a character": ("\uffff \U0010ffff oddword", "oddword"),
    "none": (None, None),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_text_is_read_back_unchanged(db: SessionDB, home: Path, name: str) -> None:
    content, word = AWKWARD[name]
    db.create_session("s", "cli")
    first = db.append_message("s", "tool", content, tool_name="t", tool_call_id="c")
    db.append_message("s", "user", "next nextword")
    assert db.get_messages("s")[0]["content"] == content
    assert db.get_messages_as_conversation("s")[0]["content"] == content
    if word:
        assert [hit["id"] for hit in db.search_messages(word)] == [first]
        db.optimize()
        assert [hit["id"] for hit in db.search_messages(word)] == [first]
    assert len(db.search_messages("nextword")) == 1

    exported = list(db.export_each())
    assert exported[0]["messages"][0]["content"] == content
    with SessionDB(home / "second.db") as other:
        other.import_sessions(exported)
        assert other.get_messages("s")[0]["content"] == content
        assert other.get_messages_as_conversation("s")[0]["content"] == content
        if word:
            assert len(other.search_messages(word)) == 1
        assert other.verify().ok
    assert db.verify().ok


def test_awkward_text_in_every_other_field(db: SessionDB) -> None:
    odd = "\0\x1b\u2028\ud800odd"
    clean = odd.replace("\ud800", "\ufffd")
    db.create_session("s" + odd, "cli", model=odd, system_prompt=odd, user_id=odd, model_config={odd: odd})
    session = db.get_session("s" + clean)
    assert session is not None
    assert (session["model"], session["system_prompt"], session["user_id"]) == (clean, clean, clean)
    calls = [{"id": odd, "function": {"name": odd, "arguments": '{"q": "callword"}'}}]
    db.append_message(
        "s" + clean,
        "assistant",
        odd,
        tool_name=odd,
        tool_calls=calls,
        tool_call_id=odd,
        finish_reason=odd,
        reasoning=odd,
        reasoning_content=odd,
        reasoning_details=[odd],
    )
    row = db.get_messages("s" + clean)[0]
    assert (row["content"], row["tool_name"], row["reasoning"], row["tool_call_id"]) == (
        clean,
        clean,
        clean,
        clean,
    )
    assert row["tool_calls"][0]["function"]["name"] == clean
    assert len(db.search_messages("callword")) == 1
    db.append_message("s" + odd, "user", "a lone surrogate in the id finds the same session")
    assert db.message_count("s" + clean) == 2
    assert db.verify().ok


def test_lone_surrogates_become_replacement_characters_and_the_session_continues(db: SessionDB) -> None:
    db.create_session("s", "cli")
    given: list[Any] = [
        "high \ud83d alone",
        "low \ude00 alone",
        "a \ud83d\ude00 pair",
        "reversed \ude00\ud83d",
        [{"type": "text", "text": "inside \udcff a list"}],
        {"key\ud800": "and in keys"},
    ]
    for content in given:
        db.append_message("s", "user", content)
    assert [row["content"] for row in db.get_messages("s")] == [
        "high \ufffd alone",
        "low \ufffd alone",
        "a \U0001f600 pair",
        "reversed \ufffd\ufffd",
        [{"type": "text", "text": "inside \ufffd a list"}],
        {"key\ufffd": "and in keys"},
    ]
    assert len(db.search_messages("alone")) == 2
    assert db.search_messages("\ud800") is not None
    db.set_session_title("s", "title \ud800")
    db.append_message("s", "user", "the session goes on")
    db.replace_messages("s", [{"role": "user", "content": "replaced \ud800"}])
    assert [row["content"] for row in db.get_messages("s")] == ["replaced \ufffd"]
    assert db.verify().ok


def test_a_row_of_thirteen_megabytes(db: SessionDB, home: Path) -> None:
    size = 13 * 1024 * 1024
    text = "beginword " + "lorem ipsum dolor " * (size // 18) + " endword"
    assert len(text) > size
    began = time.process_time()
    db.create_session("s", "cli")
    large = db.append_message("s", "user", text)
    db.append_message("s", "assistant", "after it")
    assert db.get_messages("s")[0]["content"] == text
    assert db.get_messages_as_conversation("s")[0]["content"] == text.strip()
    for word in ("beginword", "endword"):
        hits = db.search_messages(word)
        assert [hit["id"] for hit in hits] == [large]
        assert f">>>{word}<<<" in hits[0]["snippet"]
        assert len(hits[0]["snippet"]) < 2000
    assert len(db.list_sessions_rich()[0]["preview"]) == 63
    exported = db.export_session("s")
    assert exported is not None
    with SessionDB(home / "second.db") as other:
        other.import_sessions([exported])
        assert other.get_messages("s")[0]["content"] == text
    assert time.process_time() - began < 30
    assert db.verify().ok


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("plain", "plain"),
        ("one\r\ntwo\nthree", "one  two three"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 60 + "..."),
        ("nul \0 inside", "nul \0 inside"),
        ([{"type": "text", "text": "structured words"}], "structured words"),
        ("sur\ud800rogate", "sur\ufffdrogate"),
        ("", ""),
    ],
)
def test_the_first_message_is_the_preview(db: SessionDB, content: Any, shown: str) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "system", "not this")
    db.append_message("s", "user", None)
    db.append_message("s", "user", content)
    db.append_message("s", "user", "nor this")
    assert db.list_sessions_rich()[0]["preview"] == shown
    # after an update by another program, the store computes the preview again
    change_rows(db, "UPDATE sessions SET started_at = started_at")
    assert db.list_sessions_rich()[0]["preview"] == shown
