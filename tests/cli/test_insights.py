"""`hermes insights` prints the documented report at every width, as JSON and as a page."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.insights.report_lines import format_report
from hermes.insights import InsightsEngine
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, seen_on_a_terminal
from tests.cli.test_list import columns_taken

DAY = 86_400.0

USED = {"sessions": 2, "messages": 3, "total_tokens": 5, "cost": 1.5, "cost_status": "partial"}
REPORT = {
    "empty": False,
    "days": 30,
    "source_filter": ["telegram", "discord", "cli"],
    "overview": {
        "total_sessions": 2,
        "total_messages": 3,
        "user_messages": 2,
        "total_tool_calls": 9,
        "total_tokens": 5,
        "total_input_tokens": 5,
        "total_output_tokens": 5,
        "total_cache_read_tokens": 5,
        "total_cache_write_tokens": 5,
        "avg_messages_per_session": 1.5,
        "avg_tokens_per_session": 2.5,
        "date_range_start": 1_750_000_000.0,
        "date_range_end": 1_760_000_000.0,
    },
    "active_time": {"seconds": 5_400.0, "avg_session_seconds": 45.0},
    "models": [{"model": "glm-漢字", **USED}, {"model": "opus", **USED}],
    "platforms": [{"platform": "telegram", **USED}, {"platform": "cli", **USED}],
    "tools": [{"tool": f"terminal{n}", "count": n, "percentage": 5.0} for n in range(1, 20)],
    "skills": {
        "top_skills": [
            {"skill": "日本語", "view_count": 1, "manage_count": 2, "last_used_at": 1_750_000_000.0}
        ]
    },
    "activity": {
        "by_day": [{"day": "Mon", "count": 5}, {"day": "Tue", "count": 0}],
        "by_hour": [{"hour": hour, "count": hour} for hour in range(24)],
        "active_days": 3,
        "max_streak": 2,
    },
    "top_sessions": [
        {
            "label": "Most tool calls",
            "session_id": "20261115_143155_",
            "value": "1,250,936 messages",
            "date": "Nov 15",
            "title": "a title",
        }
    ],
    "costs": {
        "cost": 1.5,
        "cost_status": "partial",
        "actual": 1.0,
        "unknown_sessions": 1,
        "included_sessions": 1,
    },
    "conversations": {
        "total": 2,
        "costliest": [
            {"name": "plans", "id": "x", **USED, "cost_in_all": 2.5, "cost_status_in_all": "partial"}
        ],
    },
}
"""The part of a report that the terminal output uses."""


@pytest.fixture
def busy(in_zone: Callable[[str], None]) -> Iterator[SessionDB]:
    """Create sessions of three weeks, from two sources and with three models. They include many tools, a
    compressed conversation and unusual names."""
    in_zone("UTC")  # a time zone in which every day has 24 hours
    db, now = SessionDB(durability="normal"), time.time()
    for day in range(21):
        at = now - day * DAY
        name = f"s{day:02}"
        db.create_session(name, "telegram" if day % 3 else "cli", model="vendor/glm", started_at=at)
        db.append_message(name, "user", "do it", timestamp=at)
        for tool in range(day):
            made = [{"function": {"name": f"tool_{tool:02}_with_quite_a_long_name", "arguments": "{}"}}]
            db.append_message(name, "assistant", None, tool_calls=made, timestamp=at)
        skill = [{"function": {"name": "skill_view", "arguments": '{"name": "日本語のスキル"}'}}]
        db.append_message(name, "assistant", None, tool_calls=skill, timestamp=at)
        db.record_usage(
            name, model="vendor/glm", input_tokens=12_000, output_tokens=345, estimated_cost_usd=0.5
        )
    db.record_usage("s00", model="a/" + "very-long-model-name-" * 4, input_tokens=5)
    db.set_session_title("s05", "\x1b[31mred\x1b[0m\u202e title 漢字漢字漢字漢字漢字漢字漢字漢字漢字")
    db.record_usage(db.begin_continuation("s05", "summary"), model="vendor/glm", actual_cost_usd=7.25)
    yield db
    db.close()


def test_singular_and_plural_forms(hermes: Hermes, db: SessionDB) -> None:
    assert hermes("insights", "--days", "1").stdout == "  No sessions found in the last 1 day.\n"
    db.create_session("one", "cli")
    db.append_message("one", "user", "hello")
    shown = hermes("insights", "--days", "1").stdout
    assert "Last 1 day " in shown
    assert "Most messages    1 message  " in shown


def test_a_page_into_a_folder_that_is_not_there_names_the_folder(
    hermes: Hermes, db: SessionDB, tmp_path: Path
) -> None:
    result = hermes("insights", "--html", str(tmp_path / "none" / "page.html"))
    assert (result.returncode, result.stderr) == (
        1,
        f"hermes: No such file or directory: {tmp_path / 'none'}\n",
    )


def test_an_empty_window_is_one_line_and_no_error(hermes: Hermes, db: SessionDB) -> None:
    result = hermes("insights", "--days", "7", "--source", "cli")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "  No sessions found in the last 7 days (source: cli).\n"
    assert hermes("insights").stdout == "  No sessions found in the last 30 days.\n"


def test_an_empty_window_is_an_empty_report_for_programs(hermes: Hermes, db: SessionDB) -> None:
    told = json.loads(hermes("insights", "--json").stdout)
    assert (told["empty"], told["days"], told["source_filter"], told["models"]) == (True, 30, None, [])


def test_the_report_has_the_documented_sections_in_their_order(hermes: Hermes, busy: SessionDB) -> None:
    result = hermes("insights")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[1] == "  ╔" + "═" * 56 + "╗"
    assert lines[2].strip("║ ") == "Hermes Insights"
    headings = [before.strip() for before, rule in pairwise(lines) if rule.startswith("  ──")]
    assert headings == [
        *("Overview", "Models Used", "Platforms", "Top Tools", "Top Skills", "Activity"),
        *("Costliest Conversations", "Notable Sessions"),
    ]
    assert any(re.fullmatch(r"  Period: \w{3} \d\d, \d{4} – \w{3} \d\d, \d{4}", line) for line in lines)
    assert "  ... and 6 more tools" in lines
    assert len([line for line in lines if line.startswith(("  tool_", "  skill_view"))]) == 15
    assert "  (cost unknown for 1 session)" in lines
    assert "  Best streak: 21 days" in lines
    assert "  Active days: 21" in lines
    assert any(line.startswith("  Peak hours: ") and line.endswith(")") for line in lines)
    assert re.search(r"  Cost +\$17\.75\+   Billed of it +\$7\.25", result.stdout)
    assert re.search(r"Longest session|Most messages +22 messages", result.stdout)
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout


def test_a_single_local_platform_has_no_section(hermes: Hermes, db: SessionDB) -> None:
    db.create_session("a", "cli")
    assert "Platforms" not in hermes("insights").stdout
    db.create_session("b", "telegram")
    assert "Platforms" in hermes("insights").stdout
    assert "Platforms" in hermes("insights", "--source", "telegram").stdout


@pytest.mark.parametrize("width", [60, 61, 79, 100, 120, 200])
def test_the_report_fits_a_terminal_of_any_width_from_60(busy: SessionDB, width: int) -> None:
    told = seen_on_a_terminal(width, "insights")
    assert "\x1b[1mOverview\x1b[0m" in told
    plain = re.sub(r"\x1b\[[\d;]*m", "", told)
    assert "\x1b" not in plain, "no sequences but our colours"
    assert max(columns_taken(line) for line in plain.splitlines()) <= width
    bars = re.findall(r"(█[█▏▎▍▌▋▊▉]*)", plain)
    assert len(bars) > 20
    if width == 60:
        assert re.search("very-long-model-name-v.*…", plain)


@given(st.integers(1, 10**9))
def test_large_numbers_fit_60_columns(times: int) -> None:
    told = list(format_report(multiplied(REPORT, times), 60))
    assert max(columns_taken(line) for line in told) <= 60


def multiplied(value: Any, times: int) -> Any:
    """Return a copy of a report in which numbers are multiplied by `times` and texts are longer. Times are
    not changed."""
    if isinstance(value, dict):
        kept = {"date_range_start", "date_range_end", "last_used_at", "hour", "percentage", "days"}
        return {
            name: one
            if name in kept | {"day", "label", "date", "cost_status", "cost_status_in_all", "session_id"}
            else multiplied(one, times)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [multiplied(one, times) for one in value]
    if isinstance(value, str):
        return value if "," in value else value * 9
    return value if value is None or isinstance(value, bool) else value * times


def test_without_colours_there_are_none(busy: SessionDB) -> None:
    assert "\x1b" not in seen_on_a_terminal(80, "insights", NO_COLOR="1")


def test_days_and_sources_narrow_it_and_several_sources_may_be_named(hermes: Hermes, busy: SessionDB) -> None:
    def sessions(*words: str) -> int:
        return int(json.loads(hermes("insights", "--json", *words).stdout)["overview"]["total_sessions"])

    assert sessions() == 22
    assert sessions("--days", "4") == 5
    assert sessions("--source", "cli") == 7
    assert sessions("--source", "cli", "--source", "telegram") == 22
    told = hermes("insights", "--source", "cli", "--source", "cron").stdout
    assert "Last 30 days (source: cli, cron)" in told


@pytest.mark.parametrize(
    "words", [["--days", "0"], ["--days", "x"], ["--days", "-3"], ["--json", "--html", "f"]]
)
def test_wrong_usage_is_refused(hermes: Hermes, words: list[str]) -> None:
    result = hermes("insights", *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


def test_json_is_the_report_itself(hermes: Hermes, busy: SessionDB) -> None:
    told = json.loads(hermes("insights", "--json").stdout)
    mine = json.loads(json.dumps(InsightsEngine(busy).generate()))
    assert told.pop("generated_at") == pytest.approx(mine.pop("generated_at"), abs=60)
    assert told == mine


# The page


def test_a_page_is_written_whole_and_private(hermes: Hermes, busy: SessionDB, tmp_path: Path) -> None:
    file = tmp_path / "insights.html"
    result = hermes("insights", "--html", str(file))
    assert (result.returncode, result.stdout, result.stderr) == (0, f"Wrote {file}\n", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "日本語のスキル" in text
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_an_existing_page_is_kept_without_force(hermes: Hermes, busy: SessionDB, tmp_path: Path) -> None:
    file = tmp_path / "insights.html"
    file.write_text("mine")
    result = hermes("insights", "--html", str(file))
    assert (result.returncode, result.stdout, file.read_text()) == (1, "", "mine")
    assert result.stderr.startswith(f"hermes: {file} exists and is not an earlier export; ")
    assert hermes("insights", "--html", str(file), "--force").returncode == 0
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert [path.name for path in tmp_path.glob("*~*")] == []
    again = hermes("insights", "--html", str(file))
    assert (again.returncode, again.stdout) == (
        0,
        f"Wrote {file}\nKept the previous page as insights.html~\n",
    )
    assert (tmp_path / "insights.html~").read_text(encoding="utf-8") == page


def test_a_page_takes_the_place_of_no_pipe(hermes: Hermes, busy: SessionDB, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = hermes("insights", "--html", str(pipe), "--force")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert pipe.is_fifo()


def test_a_page_goes_to_stdout_whatever_its_encoding_is(hermes: Hermes, busy: SessionDB) -> None:
    result = hermes("insights", "--html", "-", PYTHONIOENCODING="ascii")
    assert result.stdout.startswith("<!doctype html>")
    assert "日本語のスキル" in result.stdout


@pytest.mark.parametrize("place", [".", "no/such/folder/x.html"])
def test_a_path_that_cannot_be_written_is_refused(
    hermes: Hermes, busy: SessionDB, tmp_path: Path, place: str
) -> None:
    result = hermes("insights", "--html", str(tmp_path / place))
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
