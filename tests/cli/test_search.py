"""`hermes sessions search` lists the right conversation first, with its match and a notice about hidden
results.
"""

from __future__ import annotations

import json
import time

import pytest

from hermes.recall.interactive_search import MOST_HIDDEN
from hermes_state import SessionDB
from tests.cli.conftest import AddSession, Hermes, seen_on_a_terminal

DAY = 86400


@pytest.fixture
def kept(add_session: AddSession, db: SessionDB) -> None:
    add_session("plans", "What is the retry budget in src/main.py:42?", title="Retry plans", age=3 * DAY)
    db.append_message("plans", "assistant", "The retry budget is 50%.")
    add_session("split", "retry tomorrow", title="Two words", age=2 * DAY)
    db.append_message("split", "user", "the budget of the house", timestamp=time.time() - 2 * DAY)
    add_session("trip", "我们去广西桂林", source="telegram", age=DAY)
    add_session("nightly", "retry budget of the night", source="cron")
    add_session("away", "retry budget of last year", title="Old")
    db.set_session_archived("away", True)
    add_session("fails", "please run it")
    db.append_message("fails", "tool", "Traceback (most recent call last): boom", tool_name="terminal")


def found(hermes: Hermes, *words: str) -> list[str]:
    return [
        row["conversation_id"] for row in json.loads(hermes("sessions", "search", "--json", *words).stdout)
    ]


@pytest.mark.usefixtures("kept")
def test_exact_matches_come_first_and_approximate_ones_are_marked(hermes: Hermes) -> None:
    result = hermes("sessions", "search", "retry", "budget")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Retry plans  ")
    assert ">>>retry<<< >>>budget<<<" in lines[1]
    assert "Near it:" in lines
    assert lines.index("Near it:") < next(at for at, line in enumerate(lines) if line.startswith("Two words"))
    assert lines[-1] == "1 archived, 1 cron hidden · --all"


@pytest.mark.usefixtures("kept")
def test_all_shows_hidden_conversations_and_a_source_shows_its_own(hermes: Hermes) -> None:
    assert {"nightly", "away", "plans"} <= set(found(hermes, "retry", "budget", "--all"))
    assert found(hermes, "retry", "--source", "cron") == ["nightly"]
    assert found(hermes, "source:cron", "retry") == ["nightly"]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"retry budget"', ["plans"]),
        ("src/main.py:42", ["plans"]),
        ("桂林", ["trip"]),
        ("has:error", ["fails"]),
        ("tool:terminal boom", ["fails"]),
        ('title:"retry plans" budget', ["plans"]),
        ("retry NOT tomorrow", ["plans"]),
        ("retry role:assistant", ["plans"]),
        ("*ggest* OR *tomorr*", ["split"]),
    ],
)
def test_the_query_is_searched_as_typed(hermes: Hermes, query: str, expected: list[str]) -> None:
    assert found(hermes, query) == expected


@pytest.mark.usefixtures("kept")
def test_a_title_finds_its_conversation_without_a_matching_message(hermes: Hermes) -> None:
    assert found(hermes, "two", "words") == ["split"]


@pytest.mark.usefixtures("kept")
def test_without_a_match_approximate_results_are_marked(hermes: Hermes) -> None:
    result = hermes("search", '"budget retry"')
    assert result.returncode == 0
    assert result.stdout.startswith("Nothing matches exactly; the nearest are:")
    rows = json.loads(hermes("search", "--json", '"budget retry"').stdout)
    assert rows
    assert not any(row["exact"] for row in rows)


@pytest.mark.usefixtures("kept")
def test_a_question_gets_results_without_a_notice(hermes: Hermes) -> None:
    shown = hermes("search", "what", "did", "we", "decide", "about", "the", "retry", "budget?").stdout
    assert shown.startswith("Retry plans")
    assert "exactly" not in shown


def test_no_result_is_reported_with_exit_1(hermes: Hermes, add_session: AddSession) -> None:
    add_session("one", "hello")
    result = hermes("sessions", "search", "zebra")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "hermes: No sessions found.\n")
    empty = hermes("sessions", "search", "--json", "zebra")
    assert (empty.returncode, json.loads(empty.stdout)) == (1, [])


@pytest.mark.usefixtures("kept")
def test_times_as_flags(hermes: Hermes) -> None:
    assert found(hermes, "tomorrow", "--since", "1d") == []
    assert found(hermes, "tomorrow", "--since", "3d", "--until", "yesterday") == ["split"]
    wrong = hermes("search", "retry", "--since", "the other day")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--since does not understand 'the other day'" in wrong.stderr


def test_further_results_are_reported(hermes: Hermes, add_session: AddSession) -> None:
    for number in range(3):
        add_session(f"s{number}", "needle")
    assert "showing 2, there are more · --limit\n" in hermes("search", "needle", "--limit", "2").stdout
    assert "there are more" not in hermes("search", "needle", "--limit", "3").stdout
    assert len(found(hermes, "needle", "--limit", "2")) == 2


def test_how_many_are_hidden_is_not_understated(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("mine", "needle")
    add_session("job", "needle", source="cron")
    assert hermes("search", "needle").stdout.splitlines()[-1] == "1 cron hidden · --all"
    for number in range(300):
        db.append_message("mine", "user", f"needle {number}")
    add_session("job2", "needle", source="cron")
    assert hermes("search", "needle").stdout.splitlines()[-1] == "2 cron hidden · --all"
    for number in range(MOST_HIDDEN):
        add_session(f"more{number}", "needle", source="cron")
    assert hermes("search", "needle").stdout.splitlines()[-1].startswith("at least ")


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("query", ["has:error", "tool:nothing"])
def test_without_words_none_is_called_common(hermes: Hermes, query: str) -> None:
    assert "common" not in hermes("search", query).stdout


def test_a_snippet_that_fits_is_shown_from_its_beginning(hermes: Hermes, add_session: AddSession) -> None:
    add_session("one", f"{'so ' * 30}needle")
    assert hermes("search", "needle").stdout.splitlines()[1] == f"  ● {'so ' * 30}>>>needle<<<"


def test_a_long_title_leaves_room_for_the_id(add_session: AddSession) -> None:
    add_session("20250305_091523_a1b2c3d4", "needle", title="a title that is too long " * 3)
    shown = seen_on_a_terminal(60, "search", "needle", NO_COLOR="1").splitlines()
    assert shown[0].endswith("…  just now · cli · 20250305_091523_a1b2c3d4")
    assert len(shown[0]) == 60


def test_an_unknown_field_is_reported(hermes: Hermes, add_session: AddSession) -> None:
    add_session("one", "the colour:red of it")
    assert "searched for 'colour:red' as text" in hermes("search", "colour:red").stdout


def test_snippets_have_no_control_sequences(hermes: Hermes, add_session: AddSession) -> None:
    add_session("attack", "needle \x1b[2J\x1b]0;owned\x07 \u202egnp\nforged line", title="calm")
    shown = hermes("search", "needle").stdout
    assert not set(shown) & set("\x1b\x07\u202e")
    assert len(shown.splitlines()) == 3


@pytest.mark.usefixtures("kept")
def test_without_a_terminal_open_keeps_the_query_and_names_the_commands(hermes: Hermes) -> None:
    query = 'role:assistant "retry budget"'
    refused = hermes("search", query, "--open")
    assert (refused.returncode, refused.stdout) == (1, "")
    said, *commands = refused.stderr.splitlines()
    assert said == "hermes: the full-screen browser needs a terminal"
    assert commands[0] == f"  to list the matches here: hermes search '{query}'"
    assert commands[2] == f"  in a terminal: hermes search --open '{query}'"
    _, command = commands[1].split(": hermes ")
    assert "The retry budget is 50%." in hermes(*command.split()).stdout
