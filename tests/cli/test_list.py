"""`hermes sessions list` prints the two documented tables, without control characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import unicodedata
from datetime import datetime
from pathlib import Path

import pytest

from hermes.cli.io.json_fields import JsonFields
from hermes.cli.main import make_parser
from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, AddSession, Hermes, seen_on_a_terminal

HOUR, DAY = 3600, 86400
HEAVY = (
    *("rich", "asyncio", "pydantic", "sqlite3", "httpx2", "openai", "textual", "prompt_toolkit"),
    *("dataclasses", "inspect", "json", "logging", "markdown_it", "msgspec", "ruamel", "subprocess"),
    *("hermes.recall", "hermes.terms", "hermes.store.query_tree", "hermes.store.values"),
    *(
        "hermes.store.sqlite.search.index",
        "hermes.store.sqlite.search.substring",
        "hermes.store.sqlite.search.exact_search",
    ),
)

LONG = "Help me refactor the auth module please"
SHORT = "What's the weather in Las Vegas?"


def columns_taken(text: str) -> int:
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def test_no_sessions_is_not_an_error(hermes: Hermes, db: SessionDB) -> None:
    result = hermes("sessions", "list")
    assert (result.returncode, result.stdout, result.stderr) == (0, "No sessions found.\n", "")


def test_with_a_title_among_them_titles_are_shown(hermes: Hermes, add_session: AddSession) -> None:
    add_session("20250305_091523_a1b2c3d4", LONG, title="refactoring auth", age=2 * HOUR)
    add_session("20250303_101500_f1e2d3c4", SHORT, source="telegram", age=3 * DAY + HOUR)
    result = hermes("sessions", "list")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        f"{'Title':<32} {'Preview':<40} {'Last Active':<13} ID",
        "─" * 110,
        f"{'refactoring auth':<32} {LONG:<40} {'2h ago':<13} 20250305_091523_a1b2c3d4",
        f"{'—':<32} {SHORT:<40} {'3d ago':<13} 20250303_101500_f1e2d3c4",
    ]


@pytest.mark.parametrize("width", [None, 80, 100, 120])
@pytest.mark.parametrize("title", ["refactoring auth", "認証モジュールの整理", None])
@pytest.mark.parametrize("text", [LONG, "認証モジュールを整理してください" + "よ" * 3, "x" * 40])
def test_the_previews_of_the_documents_are_not_cut_where_there_is_room(
    hermes: Hermes, add_session: AddSession, width: int | None, title: str | None, text: str
) -> None:
    """A preview has 39 columns, as in the documented example. A narrow terminal gets a shorter preview, so
    that the whole id fits beside it."""
    add_session("20250305_091523_a1b2c3d4", text, title=title or "", age=2 * HOUR)
    add_session("20250303_101500_f1e2d3c4", SHORT, age=3 * DAY + HOUR)
    if width is None:
        lines = hermes("sessions", "list").stdout.splitlines()
    else:
        lines = seen_on_a_terminal(width, "sessions", "list", NO_COLOR="1").splitlines()
        assert all(columns_taken(line) <= width for line in lines)
    row = next(line for line in lines if "20250305_091523_a1b2c3d4" in line)
    assert row.endswith("20250305_091523_a1b2c3d4")
    assert "20250303_101500_f1e2d3c4" in "".join(lines)
    assert title is None or title in row
    if width != 80 or (title is None and columns_taken(text) < 40):
        assert text in row
        assert SHORT in "".join(lines)
    else:
        assert "…" in row


@pytest.mark.parametrize("size", [31, 32, 33])
def test_a_title_that_fits_its_column_is_whole(hermes: Hermes, add_session: AddSession, size: int) -> None:
    add_session("s1", SHORT, title="t" * size)
    row = hermes("sessions", "list").stdout.splitlines()[2]
    assert row.startswith(
        "t" * 32 + " W" if size == 32 else "t" * 31 + "  W" if size == 31 else "t" * 30 + "…  W"
    )


def test_without_any_title_sources_are_shown(hermes: Hermes, add_session: AddSession) -> None:
    add_session("20250305_091523_a1b2c3d4", LONG, age=2 * HOUR)
    add_session("20250303_101500_f1e2d3c4", SHORT, source="telegram", age=DAY + HOUR)
    result = hermes("sessions", "list")
    assert result.stdout.splitlines() == [
        f"{'Preview':<50} {'Last Active':<13} {'Src':<6} ID",
        "─" * 95,
        f"{LONG:<50} {'2h ago':<13} {'cli':<6} 20250305_091523_a1b2c3d4",
        f"{SHORT:<50} {'yesterday':<13} {'tele':<6} 20250303_101500_f1e2d3c4",
    ]


def test_newest_activity_comes_first_not_newest_start(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("older", "first", age=5 * DAY)
    add_session("newer", "second", age=2 * DAY)
    db.append_message("older", "user", "again")
    rows = hermes("sessions", "list").stdout.splitlines()[2:]
    assert [row.split()[-1] for row in rows] == ["older", "newer"]


def test_one_row_per_conversation_under_its_live_id(
    hermes: Hermes, add_session: AddSession, db: SessionDB
) -> None:
    add_session("root", "the beginning")
    db.end_session("root", "compression")
    db.create_session("tip", "cli", parent_session_id="root")
    db.append_message("tip", "user", "the rest")
    rows = hermes("sessions", "list").stdout.splitlines()[2:]
    assert [row.split()[-1] for row in rows] == ["tip"]


def test_limit_and_source_choose_rows(hermes: Hermes, add_session: AddSession) -> None:
    for number in range(25):
        add_session(
            f"s{number:02}", "hello", source="telegram" if number % 5 == 0 else "cli", age=number * HOUR
        )
    shown = hermes("sessions", "list").stdout.splitlines()
    assert len(shown) == 2 + 20 + 2
    assert shown[-2:] == ["", "showing 20 of 25"]
    assert len(hermes("sessions", "list", "--limit", "3").stdout.splitlines()) == 2 + 3 + 2
    only = hermes("sessions", "list", "--source", "telegram").stdout.splitlines()[2:]
    assert [row.split()[-1] for row in only] == ["s00", "s05", "s10", "s15", "s20"]


def test_sessions_without_a_person_are_hidden_counted_and_shown_on_request(
    hermes: Hermes, add_session: AddSession
) -> None:
    add_session("mine", "hello")
    for source in ("tool", "cron", "cron", "batch"):
        add_session(f"{source}-{time.time_ns()}", "did it", source=source)
    shown = hermes("sessions", "list").stdout
    assert [line.split()[-1] for line in shown.splitlines()[2:-2]] == ["mine"]
    assert shown.splitlines()[-1] == "showing 1 of 1 · 2 cron, 1 batch, 1 tool hidden · --all"
    asked = hermes("sessions", "list", "--source", "tool").stdout
    assert len(asked.splitlines()) == 3
    assert "tool-" in asked
    assert len(hermes("sessions", "list", "--all").stdout.splitlines()) == 2 + 5


@pytest.mark.parametrize(
    "title",
    [
        "重构身份验证模块的讨论记录以及后续计划和更多内容说明",
        "🚀🚀 launch",
        "cafe\u0301 re\u0301sume\u0301 notes",
        "한국어 제목",
        "ｆｕｌｌ",
    ],
)
def test_columns_line_up_in_every_script(hermes: Hermes, add_session: AddSession, title: str) -> None:
    add_session("wide", "讨论一下数据库的设计方案，然后看看怎么实现全文检索功能吧好不好", title=title)
    add_session("plain", "hello", title="plain title")
    lines = hermes("sessions", "list").stdout.splitlines()[2:]
    starts = {columns_taken(line[: line.rindex(" ")]) for line in lines}
    assert starts == {32 + 1 + 40 + 1 + 13}


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_on_a_terminal_nothing_is_wider_than_it_and_the_rule_is_as_long_as_the_table(
    add_session: AddSession, width: int
) -> None:
    add_session("20250305_091523_a1b2c3d4", "a rather long first message, " * 3, title="long title " * 8)
    for source in ("cron", "batch", "tool", "homeassistant"):
        add_session(f"{source}_1", "did it", source=source)
    shown = seen_on_a_terminal(width, "sessions", "list", "--since", "1d", NO_COLOR="1").splitlines()
    assert max(columns_taken(line) for line in shown) <= width
    assert len(shown[1]) == max(columns_taken(line) for line in shown if "20250305" in line)
    assert " ".join(shown[-2:]).strip().endswith("1 batch, 1 cron, 1 tool hidden · --all")


def test_stored_text_cannot_send_control_sequences(hermes: Hermes, add_session: AddSession) -> None:
    attack = "before\x1b[2J\x1b]0;owned\x07\x9b31m\rafter\nline\u202egnp\x00\u2028end"
    add_session("attack", attack, title="calm title")
    result = hermes("sessions", "list")
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 3
    for printed in (result.stdout, hermes("sessions", "list", "--json").stdout):
        assert not [
            c for c in printed if c in "\u202e\u2028" or (c != "\n" and unicodedata.category(c) == "Cc")
        ]


def test_json_is_for_programs(hermes: Hermes, add_session: AddSession) -> None:
    assert json.loads(hermes("sessions", "list", "--json").stdout) == []
    add_session("20250305_091523_a1b2c3d4", "héllo 世界", title="naïve", source="telegram", age=HOUR)
    result = hermes("sessions", "list", "--json", PYTHONIOENCODING="ascii")
    [row] = json.loads(result.stdout)
    assert row["id"] == "20250305_091523_a1b2c3d4"
    assert (row["title"], row["preview"], row["source"]) == ("naïve", "héllo 世界", "telegram")
    assert row["message_count"] == 1
    assert row["last_active"] == pytest.approx(time.time() - HOUR, abs=120)


def test_a_terminal_without_unicode_still_gets_its_list(hermes: Hermes, add_session: AddSession) -> None:
    add_session("plain", "hello 世界")
    result = hermes("sessions", "list", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert "hello ??" in result.stdout


@pytest.mark.parametrize("words", [("sessions", "list"), ("sessions", "list", "--json"), ("--help",)])
def test_a_closed_pipe_is_not_an_error(add_session: AddSession, words: tuple[str, ...]) -> None:
    for number in range(5):
        add_session(f"s{number}", "hello")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*COMMAND, *words], stdout=writing, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written_is_one_line_and_exit_1(db: SessionDB) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "sessions", "list"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(b"hermes: ")
    assert done.stderr.count(b"\n") == 1


def test_the_list_imports_few_modules(add_session: AddSession) -> None:
    add_session("one", "hello", title="hello")
    program = (
        "import sys; from hermes.cli.main import main; code = main(['sessions', 'list']); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "[]\n")


def listed(hermes: Hermes, *words: str) -> list[str]:
    return [row["id"] for row in json.loads(hermes("sessions", "list", "--json", *words).stdout)]


def test_pins_tags_and_pages_choose(hermes: Hermes, add_session: AddSession, db: SessionDB) -> None:
    for number in range(4):
        add_session(f"s{number}", "hello", age=number * HOUR)
    db.pin_session("s2")
    db.add_tags("s3", "Later")
    assert listed(hermes, "--pinned") == ["s2"]
    assert listed(hermes, "--tag", "LATER") == ["s3"]
    assert listed(hermes, "--offset", "1", "--limit", "2") == ["s1", "s2"]
    page = hermes("sessions", "list", "--offset", "1", "--limit", "2").stdout
    assert page.splitlines()[-1] == "showing 2-3 of 4"
    assert hermes("sessions", "list", "--offset", "-1").returncode == 2


def test_a_filter_that_matches_nothing_is_reported(hermes: Hermes, add_session: AddSession) -> None:
    add_session("one", "hello", source="homemade")
    never = hermes("sessions", "list", "--since", "today", "--until", "2020")
    assert (never.returncode, never.stderr) == (2, "hermes: --since today begins after --until 2020 ends\n")
    fewer = hermes("sessions", "export", "-", "--min-messages", "5", "--max-messages", "4")
    assert (fewer.returncode, fewer.stdout) == (2, "")
    unknown = hermes("sessions", "list", "--source", "telegarm", "--tag", "x", "--json")
    assert (unknown.returncode, unknown.stdout) == (0, "[]\n")
    assert unknown.stderr.splitlines() == [
        "hermes: no conversation has the source 'telegarm'; did you mean 'telegram'?",
        "hermes: no conversation has the tag 'x'",
    ]
    for source in ("homemade", "telegram", "api_server"):
        assert hermes("sessions", "list", "--source", source).stderr == ""


def test_json_prints_only_the_named_fields_and_times_as_iso_8601(
    hermes: Hermes, add_session: AddSession
) -> None:
    add_session("one", "hello", title="my plan", age=HOUR)
    [row] = json.loads(hermes("sessions", "list", "--json", "title,id,last_active_iso").stdout)
    assert list(row) == ["title", "id", "last_active_iso"]
    when = datetime.fromisoformat(row["last_active_iso"])
    assert when.tzinfo is not None
    assert when.timestamp() == pytest.approx(time.time() - HOUR, abs=120)
    [whole] = json.loads(hermes("sessions", "list", "--json").stdout)
    assert (whole["last_active_iso"], whole["ended_at_iso"]) == (row["last_active_iso"], None)
    [message] = json.loads(hermes("sessions", "show", "--json", "content,role", "my", "plan").stdout)
    assert message == {"content": "hello", "role": "user"}
    wrong = hermes("sessions", "list", "--json", "id,titel")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "unknown field 'titel'; the fields are id, title, preview," in wrong.stderr


@pytest.mark.parametrize(
    ("words", "fields", "query"),
    [
        (["--json", "retry"], (), ["retry"]),
        (["--json", "retry,budget"], (), ["retry,budget"]),
        (["--json", "title,score", "retry"], ("title", "score"), ["retry"]),
        (["retry", "--json", "title"], ("title",), ["retry"]),
        (["--json", "title"], (), ["title"]),
        (["--json=title", "title"], ("title",), ["title"]),
        (["retry", "--json"], (), ["retry"]),
        (["--json", "--all", "retry"], (), ["retry"]),
        (["--json", "--", "title", "x"], (), ["title", "x"]),
        (["--", "--json", "title"], None, ["--json", "title"]),
    ],
)
def test_a_word_after_json_is_a_field_unless_it_can_be_a_query(
    words: list[str], fields: tuple[str, ...] | None, query: list[str]
) -> None:
    parsed = make_parser(["search"]).parse_args(["search", *words])
    assert parsed.query == query
    assert parsed.json == (False if fields is None else JsonFields(fields))


def test_a_workspace_that_no_conversation_has_is_reported(hermes: Hermes, add_session: AddSession) -> None:
    add_session("s", "hello")
    result = hermes("sessions", "list", "--workspace", "nowhere")
    assert (result.returncode, result.stdout) == (0, "No sessions found.\n")
    assert result.stderr == "hermes: no conversation has the workspace 'nowhere'\n"


def test_a_name_that_is_not_a_folder_does_not_mean_the_current_repository(
    hermes: Hermes, db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "ours"
    (ours / ".git").mkdir(parents=True)
    db.create_session("here", "cli", workspace=str(ours))
    db.append_message("here", "user", "hello")
    monkeypatch.chdir(ours)
    assert "here" in hermes("sessions", "list", "--workspace", "ours").stdout
    assert "here" not in hermes("sessions", "list", "--workspace", "theirs").stdout
