"""Reads tool calls from messages, with their results and edits. Describes each call in one line that hides
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.turn import STOPPED
from hermes.chat.view.calls import Call, collect_outputs, describe_call
from hermes.chat.view.diffs import Kind, classify_lines, compare, count_changes
from hermes.chat.view.edits import read_edit
from hermes.text import reveal
from hermes_state import SessionDB

Row = dict[str, Any]


def collect_calls(rows: Iterable[Row]) -> list[Call]:
    return [item for item in collect_outputs(rows) if isinstance(item, Call)]


def called(call_id: str, name: str, **arguments: Any) -> Row:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def result(call_id: str, output: str, **more: Any) -> Row:
    return {"role": "tool", "tool_call_id": call_id, "content": output, **more}


# In one line


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("terminal", {"command": "git status"}, "terminal git status"),
        ("terminal", {"command": "a\n  b", "background": True}, "terminal background=true a ⏎   b"),
        ("read_file", {"path": "src/a.py", "offset": 10, "limit": 5}, "read_file src/a.py offset=10 limit=5"),
        ("search_files", {"content": "TODO", "name": "*.py"}, "search_files content=TODO name=*.py"),
        ("write_file", {"path": "a", "content": "long"}, "write_file a"),
        (
            "patch",
            {"path": "a", "old_text": "x", "new_text": "y", "replace_all": True},
            "patch a replace_all=true",
        ),
        ("todo", {"items": [{"id": "1"}]}, 'todo items=[{"id":"1"}]'),
        ("todo", {}, "todo"),
    ],
)
def test_a_call_is_described_by_its_telling_arguments(name: str, arguments: Row, line: str) -> None:
    assert describe_call(name, arguments) == line


def test_a_long_command_is_described_whole_and_other_arguments_are_cut() -> None:
    command = "echo " + "word " * 500 + "the end"
    assert describe_call("terminal", {"command": command}).endswith("word the end")
    assert len(describe_call("session_search", {"query": command})) < 150


@pytest.mark.parametrize(
    "hiding",
    [
        # a control string: a terminal does not show it, but a shell runs it
        "echo hello \x1b]0;; rm -rf ~ #\x07",
        "echo hello \x90; rm -rf ~ #\x9c",
        "echo hello \r; rm -rf ~ #",
        "echo \u202e# ~ fr- mr ;\u202c",
        "echo hello\x1b[8m; rm -rf ~",
    ],
)
def test_no_part_of_a_command_can_hide(hiding: str) -> None:
    line = describe_call("terminal", {"command": hiding})
    visible = hiding.encode("ascii", "ignore").decode()
    assert line.isprintable()
    assert all(char in line for char in visible if char.isprintable())
    assert "rm -rf" in line or "fr- mr" in line


def test_hidden_characters_are_written_as_escapes() -> None:
    assert (
        reveal("a\x1b[0m\u202eb\u200b\U000e0041\n\tc\r\n")
        == "a\\x1b[0m\\u202eb\\u200b\\U000e0041\n\tc\\x0d\n"
    )
    assert reveal("日本語 \u3000 نمی\u200cخواهم 👨\u200d👩") == "日本語 \u3000 نمی\u200cخواهم 👨\u200d👩"


@given(st.text())
def test_escaped_text_has_no_effect_and_loses_no_visible_character(text: str) -> None:
    safe = reveal(text)
    assert not set(safe) & {"\x1b", "\x9b", "\r", "\u202e", "\x07", "\x08"}
    kept = [char for char in text if char.isprintable()]
    rest = iter(safe)
    assert all(char in rest for char in kept)


# From messages


def test_each_call_gets_its_own_result() -> None:
    rows = [
        called("1", "terminal", command="a"),
        result("1", "first\n[exit code 0]"),
        called("1", "terminal", command="b"),  # models can reuse ids
        result("1", "second\n[exit code 3]"),
        called("2", "read_file", path="x"),
        result("2", "error: there is no x"),
        called("3", "terminal", command="c"),
        result("3", STOPPED),
        called("4", "terminal", command="d"),
        result("4", "begun\n[not finished within 9 seconds; the command and its child processes were ended]"),
        called("5", "terminal", command="e"),
    ]
    calls = collect_calls(rows)
    assert [(call.printed, call.exit_state, call.failed, call.succeeded) for call in calls] == [
        ("first", "exit code 0", False, True),
        ("second", "exit code 3", False, False),
        ("error: there is no x", "", True, False),
        (STOPPED, "", True, False),
        (
            "begun",
            "not finished within 9 seconds; the command and its child processes were ended",
            False,
            False,
        ),
        ("", "", False, False),
    ]
    assert calls[-1].output is None


def test_a_search_in_conversations_is_summarised_in_a_line_for_each() -> None:
    found = [
        {
            "session_id": "s1",
            "title": "auth",
            "last_active": "2026-11-17T12:45:30+00:00",
            "snippet": "the >>>retry<<<\nbudget",
        },
        {"session_id": "s2", "title": None},
    ]
    call = Call("session_search", {}, json.dumps({"notice": "a record", "results": found, "count": 2}))
    assert call.summary == "auth · 2026-11-17 · the retry ⏎ budget\ns2"
    assert Call("session_search", {}, json.dumps({"results": []})).summary == "nothing found"
    for other in ("no JSON", "[1]", '{"results": [1]}', '{"messages": []}', "[" * 100_000):
        assert Call("session_search", {}, other).summary == other


def test_a_command_that_prints_an_error_has_not_failed_as_a_tool() -> None:
    (call,) = collect_calls([called("1", "terminal", command="a"), result("1", "error: no\n[exit code 1]")])
    assert (call.failed, call.succeeded, call.exit_state) == (False, False, "exit code 1")


@pytest.mark.parametrize("calls", [None, [], {}, "text", [None, 3], [{"function": "x"}], [{"function": {}}]])
def test_calls_of_other_programs_in_any_shape(calls: Any) -> None:
    for call in collect_calls([{"role": "assistant", "tool_calls": calls}]):
        assert call.name == "?"


def test_arguments_that_are_not_an_object_are_shown_unchanged() -> None:
    function = {"name": "terminal", "arguments": "{not json"}
    (call,) = collect_calls([{"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}])
    assert describe_call(call.name, call.arguments) == "terminal arguments={not json"


# Edits


def edit_of(name: str, output: str | None, **arguments: Any) -> Any:
    return read_edit(Call(name, arguments, output))


def test_a_new_file_is_all_added_lines() -> None:
    edit = edit_of("write_file", "a.txt: created, 8 bytes", path="./a.txt", content="one\ntwo\n")
    assert (edit.path, edit.action, edit.added, edit.removed) == ("a.txt", "created", 2, 0)
    assert edit.diff == "+one\n+two"


def test_the_diff_of_the_output_is_used_where_it_is_whole() -> None:
    output = "a.txt: +1 -1 lines, near line 3\n two\n-three\n+3\n four"
    edit = edit_of("patch", output, path="a.txt", old_text="three", new_text="3")
    assert (edit.added, edit.removed, edit.diff, edit.note) == (1, 1, " two\n-three\n+3\n four", "")


def test_a_cut_diff_of_a_patch_is_made_from_its_arguments() -> None:
    output = "a.txt: +60 -1 lines, near line 3\n+1\n[... 20 more lines of the difference ...]"
    new = "\n".join(str(number) for number in range(60))
    edit = edit_of("patch", output, path="a.txt", old_text="three", new_text=new)
    assert (edit.added, edit.removed) == (60, 1)
    assert count_changes(edit.diff) == (60, 1)
    assert "arguments" in edit.note


def test_a_diff_whose_lines_were_cut_shows_them_to_their_end() -> None:
    new = f"echo {'x' * 300}; rm -rf build"
    output = f"a.sh: +1 -1 lines, near line 1\n-echo one\n{f'+{new}'[:200]}"
    edit = edit_of("patch", output, path="a.sh", old_text="echo one", new_text=new)
    assert edit.diff.endswith("; rm -rf build")


def test_a_cut_diff_of_a_whole_file_says_so_and_keeps_the_new_text() -> None:
    output = (
        "a.txt: replaced, 9 bytes; +60 -70 lines, near line 3\n+1\n[... 20 more lines of the difference ...]"
    )
    edit = edit_of("write_file", output, path="a.txt", content="the new text")
    assert (edit.action, edit.added, edit.removed, edit.new_text) == ("replaced", 60, 70, "the new text")
    assert "only a part of the difference is stored" in edit.note


@pytest.mark.parametrize(
    ("output", "action"),
    [
        ("a: replaced, 1 bytes; nothing changed", "replaced"),
        ("a: only line ends changed", "only line ends changed"),
        (None, "changed"),
    ],
)
def test_edits_without_a_difference(output: str | None, action: str) -> None:
    assert edit_of("patch", output, path="a", old_text="x", new_text="y").action == action


def test_failed_calls_and_other_tools_have_no_edit() -> None:
    assert read_edit(Call("patch", {"path": "a"}, "error: no", failed=True)) is None
    assert edit_of("terminal", "a.txt: created, 8 bytes", command="touch a.txt") is None
    assert edit_of("patch", "x", path=7) is None


# Diffs


def test_lines_of_a_hunk_that_look_like_headings_are_content() -> None:
    diff = "--- a/x.sql\n+++ b/x.sql\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n x\n@@ -9 +9 @@\n-a\n+b"
    kinds = [kind for kind, _ in classify_lines(diff)]
    hunk = [Kind.HUNK, Kind.REMOVED, Kind.ADDED]
    assert kinds == [Kind.FILE, Kind.FILE, *hunk, Kind.CONTEXT, *hunk]
    assert count_changes(diff) == (2, 2)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_a_comparison_counts_added_and_removed_lines(old: list[str], new: list[str]) -> None:
    added, removed = count_changes(compare("\n".join(old), "\n".join(new)))
    assert added - removed == len(new) - len(old)


# From the store


def a_call(db: SessionDB, session_id: str, call_id: str, command: str) -> None:
    row = called(call_id, "terminal", command=command)
    db.append_message(session_id, "user", f"do {command}")
    db.append_message(session_id, "assistant", None, tool_calls=row["tool_calls"])
    db.append_message(session_id, "tool", "[exit code 0]", tool_call_id=call_id, tool_name="terminal")


def commands_in(db: SessionDB, session_id: str) -> list[tuple[str | None, bool]]:
    from hermes.chat.view.calls import read_tool_rows

    return [(call.command, call.is_rewound) for call in collect_calls(read_tool_rows(db, session_id))]


def test_a_conversation_is_read_across_compressions_branches_and_undo(db: SessionDB) -> None:
    db.create_session("first", "cli")
    a_call(db, "first", "1", "one")
    a_call(db, "first", "2", "two")
    taken = [row["id"] for row in db.get_messages("first") if row["content"] == "do two"]
    db.rewind_to_message("first", taken[0])
    second = db.begin_continuation("first", "a summary", [])
    a_call(db, second, "3", "three")
    branch = db.branch(second, end_parent=False)
    a_call(db, second, "4", "only in the other")
    a_call(db, branch, "5", "five")
    expected = [("one", False), ("two", True), ("three", False)]
    assert commands_in(db, second) == [*expected, ("only in the other", False)]
    assert commands_in(db, branch) == [*expected, ("five", False)]


def test_a_reset_begins_another_conversation(db: SessionDB) -> None:
    db.create_session("first", "telegram")
    a_call(db, "first", "1", "one")
    after = db.reset("first")
    a_call(db, after, "2", "two")
    assert commands_in(db, after) == [("two", False)]
