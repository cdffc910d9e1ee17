"""Snapshots of the whole screen, in the smallest supported size and in a usual size, and of the keys in the
footer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from hermes.browser.key_table import KEYS
from hermes_state import SessionDB
from tests.browser.conftest import Browsing

MARCH = 1_741_165_200.0  # 2025-03-05 09:00 UTC


@pytest.fixture
def months_ago(db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a store with conversations that are months old. Their times are shown as dates, so that the
    screen is the same every day."""
    (tmp_path / "garden").mkdir()
    monkeypatch.chdir(tmp_path / "garden")
    call = {"id": "1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
    for number, (source, title, *texts) in enumerate(
        (
            ("cli", "Retry budget", "How large is the retry budget?", "Half of what was sent, at most."),
            ("telegram", "Reise nach 广西", "我们去广西桂林", "Im Mai ist es dort am schönsten."),
            ("cli", None, "What's the weather in Las Vegas?", "Sunny, and no retry of rain."),
            ("discord", "🚀 launch [bold]day[/bold]", "Is the rocket ready?", "Ready."),
            ("cron", None, "Nightly report", "All is well."),
        )
    ):
        when = MARCH - number * 86_400
        session_id = f"20250305_09000{number}_a1b2c3"
        db.create_session(session_id, source, started_at=when)
        db.append_message(session_id, "user", texts[0], timestamp=when)
        if number == 0:
            db.append_message(session_id, "assistant", None, tool_calls=[call], timestamp=when + 60)
            db.append_message(session_id, "tool", "notes.md", tool_name="terminal", timestamp=when + 61)
        db.append_message(session_id, "assistant", texts[1], timestamp=when + 120)
        db.set_session_title(session_id, title)
    db.pin_session("20250305_090003_a1b2c3")


@pytest.mark.usefixtures("months_ago")
@pytest.mark.parametrize("size", [(60, 15), (120, 30)], ids=["60x15", "120x30"])
async def test_the_list(browsing: Browsing, snapshot: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with browsing(size=size) as screen:
        assert screen.text == snapshot


@pytest.mark.usefixtures("months_ago")
@pytest.mark.parametrize("size", [(60, 15), (120, 30)], ids=["60x15", "120x30"])
async def test_a_search(browsing: Browsing, snapshot: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with browsing(size=size) as screen:
        await screen.type("retry")
        assert screen.text == snapshot


@pytest.mark.usefixtures("months_ago")
@pytest.mark.parametrize("key", ["ctrl+f", "f1", "ctrl+r"])
async def test_what_is_asked(browsing: Browsing, snapshot: SnapshotAssertion, key: str) -> None:
    async with browsing(size=(60, 15)) as screen:
        await screen.press(key)
        assert screen.text == snapshot


@pytest.mark.parametrize("size", [(20, 5), (40, 5), (60, 15), (80, 24), (200, 60), (400, 100)])
@pytest.mark.usefixtures("months_ago")
async def test_every_line_fits_and_the_keys_stay_at_the_bottom(
    browsing: Browsing, size: tuple[int, int]
) -> None:
    async with browsing(size=size) as screen:
        await screen.type("re")
        strips = screen.app.screen._compositor.render_strips()
        assert [strip.cell_length for strip in strips] == [size[0]] * size[1]
        assert screen.lines[0].startswith("❯ re")
        assert screen.lines[-1].endswith("F1 keys")


async def test_every_key_is_shown_where_there_is_room_and_explained(browsing: Browsing) -> None:
    async with browsing(size=(180, 50)) as screen:
        bottom = screen.lines[-1]
        await screen.press("f1")
        for key in KEYS:
            assert not key.label or f"{key.name} {key.label}" in bottom
            assert key.help[:30] in screen.text


async def test_a_key_at_the_bottom_can_be_clicked(browsing: Browsing, db: SessionDB) -> None:
    db.create_session("a", "cli")
    async with browsing(size=(120, 30)) as screen:
        await screen.pilot.click("#keys", offset=(screen.lines[-1].index("pin"), 0))
        await screen.settle()
        assert screen.status.startswith("Pinned")
