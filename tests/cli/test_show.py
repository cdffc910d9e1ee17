"""`hermes sessions show` prints a conversation, and `hermes sessions tree` prints its related sessions."""

from __future__ import annotations

import json

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import AddSession, Hermes, seen_on_a_terminal


@pytest.fixture
def family(add_session: AddSession, db: SessionDB) -> None:
    """Create `my project`, compressed into `my project #2`. The second session has a branch and a
    subagent."""
    add_session("first", "check the tests", title="my project")
    db.append_message(
        "first",
        "assistant",
        "Looking.",
        reasoning="I should list files",
        tool_calls=[{"id": "c", "function": {"name": "terminal", "arguments": '{"command": "ls -la"}'}}],
    )
    db.append_message("first", "tool", "total 0\n\x1b[31mfile", tool_name="terminal", tool_call_id="c")
    db.begin_continuation("first", "Summary: tests fail", session_id="second")
    db.append_message("second", "user", "and now?")
    db.branch("second", end_parent=False, session_id="other", title="without retries")
    db.delegate("second", session_id="helper")


@pytest.mark.usefixtures("family")
def test_a_transcript_names_the_author_of_each_message(hermes: Hermes) -> None:
    shown = hermes("sessions", "show", "first")
    assert shown.returncode == 0
    assert "● You " in shown.stdout
    assert "  check the tests" in shown.stdout
    assert "  → terminal ls -la\n" in shown.stdout
    assert "file" not in shown.stdout
    assert "list files" not in shown.stdout


@pytest.mark.usefixtures("family")
def test_tools_and_reasoning_are_shown_on_request_without_control_sequences(hermes: Hermes) -> None:
    shown = hermes("sessions", "show", "first", "--tools", "--reasoning").stdout
    assert "○ terminal" in shown
    assert "  total 0\n  file" in shown
    assert "I should list files" in shown
    assert "\x1b" not in shown


def test_a_command_is_shown_whole_and_hides_nothing(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("one", "do it")
    command = f"echo {'word ' * 60}\n\x1b]0;; rm -rf build #\x07"
    arguments = json.dumps({"command": command, "timeout": 5})
    call = {"id": "c", "function": {"name": "terminal", "arguments": arguments}}
    db.append_message("one", "assistant", None, tool_calls=[call])
    short = hermes("sessions", "show", "one").stdout
    assert f"  → terminal timeout=5 echo {'word ' * 60} ⏎ \\x1b]0;; rm -rf build #\\x07\n" in short
    whole = hermes("sessions", "show", "one", "--tools").stdout
    lines = f"  → terminal\n    command: echo {'word ' * 60}\n      \\x1b]0;; rm -rf build #\\x07\n    timeout: 5\n"
    assert lines in whole


def test_a_number_that_is_too_large_is_reported_with_the_limit(
    hermes: Hermes, add_session: AddSession
) -> None:
    add_session("one", "hello")
    done = hermes("sessions", "list", "--limit", "99999999999999")
    assert done.returncode == 2
    assert "expected a whole number from 1 to 1000000000, not '99999999999999'" in done.stderr
    far = str(2**63 - 1)
    done = hermes("sessions", "show", "one", "--from", far)
    assert (done.returncode, done.stderr) == (1, f"hermes: the conversation has no message {far}\n")


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("pager", ["", " ", '"x', "no-such-pager --at-all", "cat"])
def test_a_missing_pager_does_not_prevent_the_output(pager: str) -> None:
    assert "check the tests" in seen_on_a_terminal(100, "sessions", "show", "first", PAGER=pager)


@pytest.mark.usefixtures("family")
def test_a_name_means_the_live_end_and_lineage_starts_at_the_first_segment(hermes: Hermes) -> None:
    short = hermes("sessions", "show", "my", "project").stdout
    assert short.splitlines()[0] == "my project #2"
    assert "continues from 3 earlier messages (--lineage shows them)" in short
    assert "check the tests" not in short
    whole = hermes("sessions", "show", "my project", "--lineage").stdout
    assert whole.index("check the tests") < whole.index("and now?")


@pytest.mark.usefixtures("family")
def test_from_starts_at_a_message_wherever_in_the_conversation_it_is(hermes: Hermes, db: SessionDB) -> None:
    asked = db.get_messages("first")[1]["id"]
    shown = hermes("sessions", "show", "second", "--from", str(asked)).stdout
    assert "check the tests" not in shown
    assert "Looking." in shown
    assert "and now?" in shown
    assert hermes("sessions", "show", "second", "--from", f"#{asked}").stdout == shown
    missing = hermes("sessions", "show", "second", "--from", "999")
    assert (missing.returncode, missing.stderr) == (1, "hermes: the conversation has no message 999\n")


@pytest.mark.usefixtures("family")
def test_show_as_json_is_the_rows(hermes: Hermes) -> None:
    rows = json.loads(hermes("sessions", "show", "second", "--json").stdout)
    assert [row["content"] for row in rows if row["role"] == "user"] == ["and now?"]


@pytest.mark.usefixtures("family")
def test_the_family_is_drawn_as_a_tree(hermes: Hermes) -> None:
    first, second, *rest = hermes("sessions", "tree", "other").stdout.splitlines()
    assert first.startswith("my project  first · 3 messages")
    assert second.startswith("└─ continued: my project #2  second")
    assert {line.strip(" ├└─").split("  ")[0] for line in rest} == {"branch: without retries", "subagent: —"}
    made = json.loads(hermes("sessions", "tree", "first", "--json").stdout)
    assert made["id"] == "first"
    assert made["children"][0]["relation"] == "compression"
    assert {child["id"] for child in made["children"][0]["children"]} == {"other", "helper"}


@pytest.mark.full
def test_a_chain_of_a_thousand_is_drawn(hermes: Hermes) -> None:
    with SessionDB(durability="normal") as db:
        db.create_session("s0", "cli")
        for number in range(1, 1001):
            db.end_session(f"s{number - 1}", "compression")
            db.create_session(f"s{number}", "cli", parent_session_id=f"s{number - 1}")
    assert len(hermes("sessions", "tree", "s500").stdout.splitlines()) == 1001


@pytest.mark.parametrize(
    ("width", "ends"), [(60, "c3c3"), (75, " · just now"), (100, "1 message · just now")]
)
def test_a_tree_fits_the_terminal(add_session: AddSession, db: SessionDB, width: int, ends: str) -> None:
    add_session("20250305_091523_a1b2c3d1", "hello", title="schema migration")
    db.begin_continuation("20250305_091523_a1b2c3d1", "summary", session_id="20250305_091523_a1b2c3d2")
    db.begin_continuation("20250305_091523_a1b2c3d2", "summary", session_id="20250305_091523_a1b2c3c3")
    shown = seen_on_a_terminal(
        width, "sessions", "tree", "schema migration", NO_COLOR="1", PAGER="cat"
    ).splitlines()
    assert len(shown) == 3
    assert max(map(len, shown)) <= width
    assert "20250305_091523_a1b2c3c3" in shown[-1]
    assert shown[-1].endswith(ends)


def test_an_unknown_name_is_one_line_and_an_ambiguous_one_lists_the_candidates(
    hermes: Hermes, add_session: AddSession
) -> None:
    add_session("20250305_a", "one", title="garden plans")
    add_session("20250305_b", "two", title="garden tools")
    missing = hermes("sessions", "show", "nothing")
    assert (missing.returncode, missing.stderr) == (1, "hermes: Session 'nothing' not found.\n")
    for name in ("20250305", "garden"):
        several = hermes("sessions", "show", name)
        assert several.returncode == 1
        assert several.stderr.splitlines()[0] == f"hermes: '{name}' could be any of these:"
        assert {line.split()[0] for line in several.stderr.splitlines()[1:]} == {"20250305_a", "20250305_b"}
    for number in range(10):
        add_session(f"20250305_more{number}", "three")
    assert hermes("sessions", "show", "20250305").stderr.splitlines()[11:] == ["  and more"]
    assert hermes("sessions", "show", "garden", "tools").stdout.startswith("garden tools\n")
    assert hermes("sessions", "show", "plans").stdout.startswith("garden plans\n")


def test_an_answer_is_shown_without_its_reasoning_unless_that_is_all(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("thinking", "how?")
    db.append_message(
        "thinking", "assistant", "<think>a plan</think>\n\nUse List<String>,\nor <b>.\x1b]0;x\x07"
    )
    db.append_message("thinking", "assistant", "<think>only this")
    db.append_message("thinking", "assistant", "another idea\n</think>\n\nUse a list.")
    shown = hermes("sessions", "show", "thinking").stdout
    assert "  Use List<String>,\n  or <b>.\\x1b]0;x\\x07\n" in shown
    assert "a plan" not in shown
    assert "another idea" not in shown
    assert "  Use a list.\n" in shown
    assert "  ∴ reasoning, without an answer\n  only this\n" in shown
    assert "  ∴ reasoning\n  a plan\n" in hermes("sessions", "show", "thinking", "--reasoning").stdout


def test_latest_is_the_last_conversation_of_the_terminal(hermes: Hermes, add_session: AddSession) -> None:
    add_session("older", "first words", age=2)
    add_session("newer", "last words", age=1)
    assert "last words" in hermes("sessions", "show", "latest").stdout
    refused = hermes("sessions", "delete", "latest", "--yes")
    assert (refused.returncode, refused.stderr) == (1, "hermes: Session 'latest' not found.\n")
