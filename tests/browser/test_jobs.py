"""Conversations of scheduled jobs are grouped by job. A job is opened and closed, and is no conversation itself."""

from __future__ import annotations

import pytest

from hermes.browser.rows import PAGE
from hermes.browser.view_state import View, show_everything
from hermes_state import SessionDB
from tests.browser.conftest import DAY, HOUR, AddSession, Browsing, Screen
from tests.browser.test_list import add_many

JOBS = View(sources=("cron",))


def some(add_session: AddSession) -> None:
    """Store a chat and the runs of two jobs: three of `nightly`, two of `report`. `report` ran last."""
    add_session("mine", "a question", age=5 * HOUR)
    for day in (1, 2, 3):
        add_session(f"cron_nightly_2026010{day}_030000", f"night {day}", source="cron", age=(4 - day) * DAY)
    for day in (1, 2):
        add_session(f"cron_report_2026010{day}_090000", f"report {day}", source="cron", age=(4 - day) * HOUR)


def read_list(screen: Screen) -> list[str]:
    """Return the names in the rows of the list, with the signs before them."""
    list_width = screen.app.list.size.width
    lines = [line[:list_width].rstrip() for line in screen.lines[1:-2]]
    return [line[1:].split("  cron ")[0].split("  cli ")[0].rstrip() for line in lines if line]


async def test_jobs_are_hidden_and_counted_by_default(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing() as screen:
        assert read_list(screen) == [" a question"]
        assert "5 cron hidden" in screen.status


@pytest.mark.parametrize("view", [show_everything(View()), View(kinds=("chat", "job"))])
async def test_each_job_has_a_row_with_the_number_of_its_conversations_after_all_others(
    browsing: Browsing, add_session: AddSession, view: View
) -> None:
    some(add_session)
    async with browsing(view) as screen:
        assert read_list(screen) == [
            " a question",
            " ▸ Job report: 2 conversations",
            " ▸ Job nightly: 3 conversations",
        ]
        assert "2h ago" in screen.lines[2], "the time of the last run"
        assert "yesterday" in screen.lines[3] or "1d ago" in screen.lines[3]
        assert screen.status.startswith("1 of 3")


async def test_a_filter_shows_the_jobs(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing() as screen:
        await screen.press("ctrl+f", "space", "enter")
        assert screen.app.view == JOBS
        assert read_list(screen) == [" ▸ Job report: 2 conversations", " ▸ Job nightly: 3 conversations"]


async def test_enter_opens_and_closes_a_job(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("enter")
        assert read_list(screen) == [
            " ▾ Job report: 2 conversations",
            "   report 2",
            "   report 1",
            " ▸ Job nightly: 3 conversations",
        ]
        assert screen.app.is_running
        await screen.press("enter")
        assert read_list(screen) == [" ▸ Job report: 2 conversations", " ▸ Job nightly: 3 conversations"]


async def test_arrows_open_and_close_a_job_while_nothing_is_typed(
    browsing: Browsing, add_session: AddSession
) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("right", "right", "down", "down")
        assert screen.current == "report 1"
        await screen.press("left", "left")
        assert read_list(screen) == [" ▸ Job report: 2 conversations", " ▸ Job nightly: 3 conversations"]
        assert screen.app.list.cursor == 0
        await screen.type("night")
        await screen.press("left")
        assert screen.app.search.cursor_position == len("night") - 1


async def test_a_double_click_opens_a_job(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.pilot.click("#list", offset=(5, 1), times=2)
        await screen.settle()
        assert screen.names == ["night 3", "night 2", "night 1"]


async def test_enter_resumes_a_run(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("enter", "down", "down", "enter")
    assert screen.app.return_value == "cron_report_20260101_090000"


async def test_the_preview_shows_the_run_or_the_last_run_of_the_job(
    browsing: Browsing, add_session: AddSession
) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        assert "╭─ report 2 ─" in screen.lines[1]
        await screen.press("enter", "down", "down")
        assert "╭─ report 1 ─" in screen.lines[1]


async def test_runs_are_deleted_and_restored_inside_their_job(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("enter", "down", "ctrl+d")
        assert read_list(screen)[:2] == [" ▾ Job report: 1 conversation", "   report 1"]
        assert db.get_conversation("cron_report_20260102_090000") is None
        await screen.press("ctrl+d")
        assert read_list(screen) == [" ▸ Job nightly: 3 conversations"]
        await screen.press("ctrl+z", "ctrl+z")
        assert read_list(screen)[:3] == [" ▾ Job report: 2 conversations", "   report 2", "   report 1"]
        assert screen.current == "report 2"


@pytest.mark.parametrize("key", ["ctrl+d", "ctrl+t", "ctrl+p", "ctrl+g", "ctrl+e"])
async def test_a_job_is_not_changed_as_a_whole(
    browsing: Browsing, add_session: AddSession, db: SessionDB, key: str
) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press(key)
        assert screen.status == "This row is a job: ⏎ shows its conversations, which can be changed"
        assert not screen.app.question.is_open
        assert db.list_conversations(sources=["cron"]).total == 5


async def test_marks_are_set_on_visible_runs_and_stay_when_the_job_is_closed(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("ctrl+a")
        assert screen.app.list.marks == {}, "no run is visible"
        await screen.press("enter", "ctrl+x", "ctrl+x")
        assert list(screen.app.list.marks) == ["cron_report_20260102_090000"]
        await screen.press("ctrl+a")
        assert screen.status.startswith("2 marked")
        await screen.press("left")
        assert screen.status.startswith("2 marked · 1 of 2")
        await screen.press("ctrl+d")
        assert read_list(screen) == [" ▸ Job nightly: 3 conversations"]
        await screen.press("ctrl+z")
        assert read_list(screen) == [" ▸ Job report: 2 conversations", " ▸ Job nightly: 3 conversations"]


async def test_a_change_is_shown_inside_the_job(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("end", "enter", "down", "down", "ctrl+p")
        assert "   ★ night 2" in read_list(screen)
        await screen.press("ctrl+l")
        assert screen.current == "night 2", "the cursor stays on the run, and the job stays open"
        assert read_list(screen)[1:3] == ["   ★ night 2", "   night 3"]


async def test_the_cursor_stays_on_a_job_when_the_list_grows(
    browsing: Browsing, add_session: AddSession
) -> None:
    some(add_session)
    async with browsing(show_everything(View())) as screen:
        await screen.press("down", "down")
        add_session("another")
        await screen.press("ctrl+l")
        assert screen.app.list.current_job is not None
        assert screen.app.list.current_job.job_id == "nightly"


async def test_a_search_shows_the_runs_that_it_finds(browsing: Browsing, add_session: AddSession) -> None:
    some(add_session)
    async with browsing(JOBS) as screen:
        await screen.press("enter")
        await screen.type("night")
        assert sorted(screen.names) == ["night 1", "night 2", "night 3"]
        assert "Job" not in screen.text
        await screen.press("escape")
        assert read_list(screen)[0] == " ▾ Job report: 2 conversations"


async def test_other_sessions_of_the_source_are_rows_among_the_others(
    browsing: Browsing, add_session: AddSession
) -> None:
    some(add_session)
    add_session("cron_by_hand", "typed", source="cron", age=4 * HOUR)
    async with browsing(show_everything(View())) as screen:
        assert read_list(screen)[:3] == [" typed", " a question", " ▸ Job report: 2 conversations"]


@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        (1, [" ▸ Job report: 1 conversation"]),
        (3, [" a question", " ▸ Job report: 2 conversations"]),
        (4, [" a question", " ▸ Job report: 2 conversations", " ▸ Job nightly: 1 conversation"]),
    ],
)
async def test_a_limit_counts_the_conversations_of_jobs(
    browsing: Browsing, add_session: AddSession, limit: int, rows: list[str]
) -> None:
    some(add_session)
    async with browsing(View(kinds=("chat", "job"), limit=limit)) as screen:
        assert read_list(screen) == rows


async def test_hidden_conversations_of_jobs_are_counted(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    some(add_session)
    db.set_session_archived("cron_nightly_20260101_030000", True)
    db.set_session_archived(add_session("old"), True)
    for limit in (None, 20):
        async with browsing(View(kinds=("chat", "job"), limit=limit)) as screen:
            assert " ▸ Job nightly: 2 conversations" in read_list(screen)
            assert "2 archived hidden" in screen.status


async def test_jobs_follow_a_list_that_is_loaded_page_by_page(browsing: Browsing) -> None:
    with SessionDB() as store:
        add_many(store, 3 * PAGE + 7)
        for number in range(2):
            store.create_session(f"cron_nightly_20260101_00000{number}", "cron")
        async with browsing(View(kinds=("chat", "job")), store=store, size=(140, 30)) as screen:
            assert screen.app.list.rows.total == 3 * PAGE + 8
            await screen.press("end", "enter")
            assert read_list(screen)[-3].endswith("▾ Job nightly: 2 conversations")
            await screen.press("up")
            assert screen.app.list.current is not None
            assert screen.app.list.current.id == f"s{3 * PAGE + 6:05}"
            await screen.press("ctrl+a")
            assert screen.status.startswith(f"{3 * PAGE + 9} marked")
            await screen.press("ctrl+d", "y", "enter")
            assert screen.app.list.rows.total == 0
