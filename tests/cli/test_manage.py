"""Commands that manage conversations: rename, pin, archive, delete, restore, prune, thin, scrub and
statistics.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from hermes import clock
from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, AddSession, Hermes, seen_on_a_terminal
from tests.stored_rows import change_rows

DAY = 86400


def listed(hermes: Hermes, *flags: str) -> set[str]:
    return {row["id"] for row in json.loads(hermes("sessions", "list", "--json", *flags).stdout)}


# ---------------------------------------------------------------- rename


def test_rename_takes_unquoted_words_and_every_way_to_name_a_session(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("20250305_091523_a1b2c3d4", "hello")
    done = hermes("sessions", "rename", "20250305_0915", "debugging", "auth", "flow")
    assert (done.returncode, done.stdout) == (
        0,
        "Session '20250305_091523_a1b2c3d4' renamed to: debugging auth flow\n",
    )
    hermes("sessions", "rename", "debugging auth flow", "done")
    assert db.get_session_title("20250305_091523_a1b2c3d4") == "done"


def test_rename_reports_the_title_and_refuses_invalid_ones(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("one", "hello", title="taken")
    add_session("two", "hello")
    assert "renamed to: clean title" in hermes("sessions", "rename", "two", "clean\u202e", "title").stdout
    for title in ("taken", "x" * 101, "\u200b"):
        refused = hermes("sessions", "rename", "two", title)
        assert refused.returncode == 1
        assert refused.stderr.count("\n") == 1
    assert db.get_session_title("two") == "clean title"


# ---------------------------------------------------------------- pin, archive


def test_pinned_conversations_are_kept_and_archived_ones_hidden_and_counted(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("kept", "hello", age=200 * DAY)
    add_session("put away", "hello")
    db.end_session("kept", "cli_close")
    assert hermes("sessions", "pin", "kept").stdout == "Pinned session 'kept'.\n"
    assert "Nothing to prune" in hermes("sessions", "prune", "--yes").stdout
    assert hermes("sessions", "archive", "put away").returncode == 0
    assert listed(hermes) == {"kept"}
    assert "1 archived hidden" in hermes("sessions", "list").stdout
    hermes("sessions", "unarchive", "put away")
    hermes("sessions", "unpin", "kept")
    assert listed(hermes) == {"kept", "put away"}
    assert "Pruned 1 session." in hermes("sessions", "prune", "--yes").stdout


def test_one_wrong_name_of_several_changes_nothing(hermes: Hermes, add_session: AddSession) -> None:
    add_session("one", "hello")
    assert hermes("sessions", "archive", "one", "nobody").returncode == 1
    assert listed(hermes) == {"one"}


# ---------------------------------------------------------------- delete, trash


def test_delete_asks_and_only_yes_deletes(hermes: Hermes, add_session: AddSession) -> None:
    add_session("mine", "hello")
    asked = hermes("sessions", "delete", "mine", stdin="no\n")
    assert asked.returncode == 1
    assert (asked.stdout, asked.stderr) == (
        "hello · 1 session, 1 message\nDelete session 'mine' and all its messages? [y/N] ",
        "hermes: Cancelled.\n",
    )
    assert hermes("sessions", "delete", "mine").returncode == 1
    assert listed(hermes) == {"mine"}
    done = hermes("sessions", "delete", "mine", stdin="y\n")
    assert done.returncode == 0
    assert "Deleted session 'mine'." in done.stdout
    assert "hermes sessions trash restore mine" in done.stdout
    assert listed(hermes, "--all") == set()


def test_without_a_question_only_a_full_title_is_accepted(hermes: Hermes, add_session: AddSession) -> None:
    """With `--yes`, only a full title is accepted. If a part of a title were enough, a second run of the same
    command could delete another conversation."""
    add_session("mine", "hello", title="plan")
    add_session("other", "hello", title="garden plans")
    assert hermes("sessions", "delete", "plan", "--yes").returncode == 0
    again = hermes("sessions", "delete", "plan", "--yes")
    assert (again.returncode, again.stderr) == (
        1,
        "hermes: 'plan' is only a part of the title of other; type the full title\n",
    )
    assert listed(hermes) == {"other"}
    assert hermes("sessions", "delete", "plan", stdin="y\n").returncode == 0
    assert "In the trash: 2 sessions" in hermes("sessions", "stats").stdout


def test_a_trashed_conversation_is_reported_as_trashed(hermes: Hermes, add_session: AddSession) -> None:
    add_session("mine", "hello", title="my plan")
    hermes("sessions", "delete", "mine", "--yes")
    for words in (
        ("sessions", "show"),
        ("sessions", "rename"),
        ("chat", "-q", "hi", "-r"),
        ("chat", "-q", "hi", "-c"),
    ):
        for name, quoted in (("mine", "mine"), ("my plan", "'my plan'")):
            new_title = ["new title"] if words[-1] == "rename" else []
            result = hermes(*words, name, *new_title)
            assert result.returncode == 1
            assert (
                f"it is in the trash; restore it with `hermes sessions trash restore {quoted}`"
                in result.stderr
            )
    assert "trash" not in hermes("sessions", "show", "nothing").stderr


def test_the_trash_is_listed_restored_and_emptied(hermes: Hermes, add_session: AddSession) -> None:
    add_session("mine", "hello", title="my plan")
    add_session("other", "hello")
    hermes("sessions", "delete", "mine", "other", "--yes")
    rows = json.loads(hermes("sessions", "trash", "list", "--json").stdout)
    assert {row["id"] for row in rows} == {"mine", "other"}
    assert "my plan" in hermes("sessions", "trash", "list").stdout
    back = hermes("sessions", "trash", "restore", "my plan")
    assert back.stdout == "Restored session 'mine' as 'my plan'.\n"
    assert listed(hermes) == {"mine"}
    untitled = hermes("sessions", "trash", "restore", "other")
    assert untitled.stdout == "Restored session 'other' (hello).\n"
    hermes("sessions", "delete", "other", "--yes")
    assert hermes("sessions", "trash", "restore", "mine").returncode == 1
    assert hermes("sessions", "trash", "empty").returncode == 1
    assert "Deleted 1 session from the trash." in hermes("sessions", "trash", "empty", "--yes").stdout
    assert hermes("sessions", "trash", "list").stdout == "The trash is empty.\n"
    assert json.loads(hermes("sessions", "trash", "list", "--json").stdout) == []


@pytest.mark.parametrize("width", [70, 100])
def test_the_trash_fits_the_terminal(add_session: AddSession, db: SessionDB, width: int) -> None:
    add_session("20250305_091523_a1b2c3d4", "hello", title="a title that is too long " * 3)
    db.trash_session("20250305_091523_a1b2c3d4")
    shown = seen_on_a_terminal(width, "sessions", "trash", "list", NO_COLOR="1").splitlines()
    assert {len(line) for line in shown[1:]} == {width}


def test_the_whole_conversation_is_deleted_unless_a_segment_is_requested(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    for name in ("a", "b"):
        add_session(f"{name}1", "hello")
        db.begin_continuation(f"{name}1", "summary", session_id=f"{name}2")
    hermes("sessions", "delete", "a2", "--yes")
    hermes("sessions", "delete", "b1", "--yes", "--segment")
    assert {row["id"] for row in db.list_sessions_rich(include_children=True)} == {"b2"}


def continued(add_session: AddSession, db: SessionDB) -> None:
    """Create a conversation of three segments with the titles `plan`, `plan #2` and `plan #3`."""
    add_session("s1", "hello", title="plan")
    db.begin_continuation("s1", "summary", session_id="s2")
    db.begin_continuation("s2", "summary", session_id="s3")


def test_a_segment_that_is_named_by_its_title_is_the_one_with_that_title(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    continued(add_session, db)
    assert hermes("sessions", "pin", "plan #2", "--segment").stdout == "Pinned session 's2'.\n"
    exported = hermes("sessions", "export", "-", "--session-id", "plan", "--segment").stdout
    assert json.loads(exported)["id"] == "s1"
    assert "Deleted session 's2'." in hermes("sessions", "delete", "plan #2", "--segment", "--yes").stdout
    assert [row["id"] for row in db.list_trash()] == ["s2"]


def test_delete_reports_its_effect_and_each_name_restores_it(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    continued(add_session, db)
    add_session("other one", "hello")
    asked = hermes("sessions", "delete", "plan", "other one", stdin="y\n")
    assert asked.stdout.startswith("plan #3 · 3 sessions, 3 messages\nhello · 1 session, 1 message\n")
    assert "Also deleted: 2 related sessions." in asked.stdout
    assert asked.stdout.endswith("hermes sessions trash restore s3 'other one'\n")
    back = hermes("sessions", "trash", "restore", "s3")
    assert back.stdout == "Restored session 's1' as 'plan #3', 3 sessions in all.\n"
    assert listed(hermes) == {"s3"}


def test_purge_leaves_no_byte_and_takes_the_conversation(
    hermes: Hermes, add_session: AddSession, db: SessionDB, home: Path
) -> None:
    add_session("s1", "xylophone secret")
    db.begin_continuation("s1", "xylophone summary", session_id="s2")
    db.close()
    done = hermes("sessions", "delete", "s2", "--purge", "--yes")
    assert done.stdout == "Deleted session 's2'.\nAlso deleted: 1 related session.\n"
    assert not [file for file in home.rglob("*") if file.is_file() and b"xylophone" in file.read_bytes()]


@pytest.mark.parametrize("command", [("delete", "mine"), ("prune", "--older-than", "0"), ("trash", "empty")])
def test_ctrl_c_at_the_question_changes_nothing_and_is_exit_130(
    add_session: AddSession, db: SessionDB, command: tuple[str, ...]
) -> None:
    add_session("mine", "hello", age=DAY)
    db.end_session("mine", "cli_close")
    add_session("thrown", "hello")
    db.trash_session("thrown")
    with subprocess.Popen(
        [*COMMAND, "sessions", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        asked = b""
        while not asked.endswith(b"[y/N] "):
            asked += running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        _, complaint = running.communicate(timeout=60)
    assert (running.returncode, complaint) == (130, b"hermes: interrupted\n")
    assert db.session_count() == 1
    assert len(db.list_trash()) == 1


# ---------------------------------------------------------------- prune, thin


def test_prune_lists_conversations_before_it_asks(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    for number, age in enumerate((100, 200, 300)):
        add_session(f"old{number}", "x" * 1000, age=age * DAY)
        db.end_session(f"old{number}", "cli_close")
    add_session("open", "hello", age=400 * DAY)
    asked = hermes("sessions", "prune", stdin="n\n")
    assert asked.returncode == 1
    assert asked.stdout.startswith("3 conversations, 3 sessions, 3 messages, 3.0 kB\nlast used from ")
    assert asked.stdout.endswith("Delete 3 sessions permanently? [y/N] ")
    assert asked.stderr == "hermes: Cancelled.\n"
    dry = hermes("sessions", "prune", "--dry-run", "--older-than", "250")
    assert dry.stdout.startswith("1 conversation, ")
    assert dry.stdout.endswith("Nothing was deleted.\n")
    assert "Pruned 1 session." in hermes("sessions", "prune", "--older-than", "250", "--yes").stdout
    assert listed(hermes) == {"old0", "old1", "open"}


def test_prune_shows_when_a_conversation_was_last_used_not_when_it_began(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("s1", "hello", title="plan", age=300 * DAY)
    db.begin_continuation("s1", "summary", session_id="s2")
    change_rows(db, "UPDATE messages SET timestamp = timestamp - ? WHERE session_id = 's2'", 100 * DAY)
    db.end_session("s2", "cli_close")
    used = clock.format_day(clock.now() - 100 * DAY)
    shown = hermes("sessions", "prune", "--dry-run").stdout.splitlines()
    assert shown[1:3] == [f"last used from {used} to {used}", f"  {used}  s2  plan #2"]


@pytest.mark.parametrize(
    ("flags", "gone"),
    [
        (("--source", "telegram"), {"phone"}),
        (("--source", "telegram", "--source", "cli"), {"phone", "plan", "long"}),
        (("--title", "PLAN"), {"plan"}),
        (("--model", "gpt"), {"long"}),
        (("--min-messages", "3"), {"long"}),
        (("--max-messages", "1"), {"phone", "plan", "job"}),
    ],
)
def test_prune_goes_by_filters(
    hermes: Hermes, add_session: AddSession, db: SessionDB, flags: tuple[str, ...], gone: set[str]
) -> None:
    add_session("phone", "hello", source="telegram", age=100 * DAY)
    add_session("plan", "hello", title="The plan", age=100 * DAY)
    add_session("job", "hello", source="cron", age=100 * DAY)
    db.create_session("long", "cli", model="openai/GPT-5", started_at=1e9)
    for number in range(3):
        db.append_message("long", "user", "hello", timestamp=1e9 + number)
    for name in ("phone", "plan", "job", "long"):
        db.end_session(name, "cli_close")
    hermes("sessions", "prune", "--yes", *flags)
    assert {"phone", "plan", "job", "long"} - listed(hermes, "--all") == gone


def test_prune_knows_workspaces(hermes: Hermes, db: SessionDB, tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        db.create_session(name, "cli", started_at=1e9, workspace=str(tmp_path / name))
        db.end_session(name, "cli_close")
    hermes("sessions", "prune", "--yes", "--workspace", str(tmp_path / "here"))
    assert listed(hermes) == {"there"}


def test_thin_removes_old_tool_output_and_no_text_of_people(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("old", "u" * 50_000, age=200 * DAY)
    db.append_message("old", "tool", "t" * 50_000, tool_name="terminal", timestamp=1e9)
    db.end_session("old", "cli_close")
    change_rows(db, "UPDATE sessions SET last_active = 1e9, conversation_active = 1e9 WHERE id = 'old'")
    dry = hermes("sessions", "thin", "--dry-run")
    assert dry.stdout.startswith("Would free ")
    assert len(db.get_messages("old")[1]["content"]) == 50_000
    assert hermes("sessions", "thin", stdin="n\n").returncode == 1
    assert hermes("sessions", "thin", "--yes").stdout.startswith("Freed ")
    person, tool = db.get_messages("old")
    assert len(person["content"]) == 50_000
    assert len(tool["content"]) < 20_000
    assert hermes("sessions", "thin").stdout == "Nothing to thin.\n"


# ---------------------------------------------------------------- scrub, stats


def test_scrub_takes_the_secret_from_stdin_and_shows_where_it_is(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("mine", "my key is sk-live-0123456789abcdef")
    asked = hermes("sessions", "scrub", stdin="sk-live-0123456789abcdef\n")
    assert asked.returncode == 1
    assert "needs --yes" in asked.stderr
    assert "0123456789" not in asked.stdout
    assert "0123456789" in db.get_messages("mine")[0]["content"]
    done = hermes("sessions", "scrub", "--yes", stdin="sk-live-0123456789abcdef\n")
    assert done.returncode == 0
    assert "0123456789" not in db.get_messages("mine")[0]["content"]
    nothing = hermes("sessions", "scrub", stdin="")
    assert (nothing.returncode, nothing.stderr.count("\n")) == (1, 1)


def test_stats_begin_with_the_documented_lines(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("one", "hello")
    add_session("two", "hello")
    add_session("three", "hello", source="telegram")
    add_session("four", "hello")
    db.append_message("one", "tool", "x" * 100, tool_name="terminal")
    db.trash_session("four")
    lines = hermes("sessions", "stats").stdout.splitlines()
    assert lines[:4] == ["Total sessions: 3", "Total messages: 4", "cli: 2 sessions", "telegram: 1 sessions"]
    assert lines[4].startswith("Database size: 0.")
    assert lines[4].endswith(" MB")
    told_last = [line for line in lines if line.startswith("Last message stored: ")]
    assert told_last[0].endswith("of one")
    made = json.loads(hermes("sessions", "stats", "--json").stdout)
    assert (made["sessions"], made["messages"], made["in_trash"]) == (3, 4, 1)
    assert made["by_source"] == {"cli": 2, "telegram": 1}
    assert made["bytes"]["tool_output"] == 100
    assert made["bytes"]["index"] > 0
    assert made["last_write"]["session_id"] == "one"


def test_stats_of_an_empty_store(hermes: Hermes, db: SessionDB) -> None:
    lines = hermes("sessions", "stats").stdout.splitlines()
    assert lines[:2] == ["Total sessions: 0", "Total messages: 0"]


def test_tags_are_added_removed_and_listed(hermes: Hermes, add_session: AddSession, db: SessionDB) -> None:
    add_session("first", "hello", title="my plan")
    add_session("second", "hello")
    db.begin_continuation("first", "summary", session_id="third")
    added = hermes("sessions", "tag", "add", "my plan", "Home", "to do")
    assert added.stdout == "Tags of session 'third': home, to do\n"
    hermes("sessions", "tag", "add", "second", "home")
    assert hermes("sessions", "tag", "list").stdout == "home   2 conversations\nto do  1 conversation\n"
    rows = json.loads(hermes("sessions", "tag", "list", "second", "--json").stdout)
    assert rows == [{"tag": "home", "conversations": 2}]
    assert hermes("sessions", "tag", "remove", "first", "HOME").stdout == "Tags of session 'first': to do\n"
    again = hermes("sessions", "tag", "remove", "first", "home")
    assert (again.returncode, again.stderr) == (
        1,
        "hermes: session 'first' has no tag 'home'; nothing was changed\n",
    )
    assert hermes("sessions", "tag", "add", "first", " ").returncode == 1
    assert db.tags_of("third") == ["to do"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("s1", "foo"), "; use: hermes sessions tag add s1 foo"),
        (("my plan", "to do", "foo"), "; use: hermes sessions tag add 'my plan' 'to do' foo"),
        (("s1", "foo", "--store", "state.db"), "; use: hermes sessions tag add s1 foo"),
        (("s1",), "; use: hermes sessions tag list s1"),
        (("my plan", "remove", "foo"), "; use: hermes sessions tag remove 'my plan' foo"),
        (("ad", "s1", "foo"), "; did you mean 'add'?"),
    ],
)
def test_a_tag_without_a_command_says_what_to_type(
    hermes: Hermes, words: tuple[str, ...], meant: str
) -> None:
    refused = hermes("sessions", "tag", *words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"hermes: there is no command '{words[0]}'{meant} (see 'hermes sessions tag --help')\n"
    )
