"""Keys that were pressed before a dialog or a question was drawn are discarded."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from hermes.browser.dialogs import FilterDialog, HelpScreen
from hermes.browser.lines import Question
from hermes_state import SessionDB
from tests.browser.conftest import Browsing, Screen, Told


def send(screen: Screen, *keys: str) -> None:
    """Send all keys at once, as a terminal does with keys that were typed ahead."""
    characters = {"enter": "\r"}
    for key in keys:
        screen.app.post_message(events.Key(key, characters.get(key, key if len(key) == 1 else None)))


async def test_enter_before_the_filters_are_drawn_neither_resumes_nor_applies(
    browsing: Browsing, told: Told
) -> None:
    told("s1", title="one")
    async with browsing() as screen:
        send(screen, "ctrl+f", "x", "space", "enter")
        await screen.settle()
        assert isinstance(screen.app.screen, FilterDialog)
        assert screen.app.search.value == ""
        await screen.press("escape")
        assert screen.app.is_running
        assert screen.app.view.sources is None


@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+e"])
async def test_enter_before_a_question_is_drawn_does_not_answer_it(
    browsing: Browsing, told: Told, db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told("s1", title="one")
    async with browsing() as screen:
        send(screen, key, "x", "enter")
        await screen.settle()
        assert screen.app.query_one(Question).is_open
        assert db.get_session_title("s1") == "one"
        await screen.press("enter")
        assert not screen.app.query_one(Question).is_open
    assert db.get_session_title("s1") == "one"
    assert [file.name for file in tmp_path.glob("*.md")] == (["one.md"] if key == "ctrl+e" else [])


async def test_enter_before_the_help_is_drawn_does_not_close_it(browsing: Browsing, told: Told) -> None:
    told("s1", title="one")
    async with browsing() as screen:
        send(screen, "f1", "enter")
        await screen.settle()
        assert isinstance(screen.app.screen, HelpScreen)


async def test_ctrl_c_always_leaves(browsing: Browsing, told: Told) -> None:
    told("s1", title="one")
    async with browsing() as screen:
        send(screen, "ctrl+f", "ctrl+c")
        await screen.settle()
        assert not screen.app.is_running
