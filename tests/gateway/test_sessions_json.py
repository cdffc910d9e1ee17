"""sessions.json has the documented format. It is replaced atomically, and written only after changes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway.inbound_events import Source
from hermes.gateway.mirror import sessions_json
from hermes.gateway.mirror.sessions_json import IndexFile
from hermes_state import SessionDB
from tests.gateway.mirror_samples import ANN, ROOM, begun

DOCUMENTED = [
    *("session_key", "session_id", "created_at", "updated_at", "display_name", "platform", "chat_type"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "total_tokens"),
    *("last_prompt_tokens", "estimated_cost_usd", "cost_status", "expiry_finalized", "suspended"),
    *("resume_pending", "resume_reason", "last_resume_marked_at", "is_fresh_reset", "origin"),
]
KEY = "agent:main:telegram:dm:42"


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "sessions"


def read(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "sessions.json").read_text("utf-8"))
    return data


def test_an_entry_has_every_documented_key(db: SessionDB, folder: Path) -> None:
    chat = begun(db, key=KEY, display_name="Ann")
    db.record_usage(
        chat, model="m", input_tokens=7, output_tokens=2, cache_read_tokens=1, estimated_cost_usd=0.5
    )
    entry = {"last_prompt_tokens": 1234, "suspended": True, "resume_reason": "restart_timeout"}
    db.routing.change_entry(KEY, lambda _: entry)
    IndexFile(db, folder).write()
    result = read(folder)[KEY]
    assert list(result) == DOCUMENTED
    assert (result["session_key"], result["session_id"], result["platform"]) == (KEY, chat, "telegram")
    assert (result["input_tokens"], result["total_tokens"], result["last_prompt_tokens"]) == (7, 10, 1234)
    assert result["estimated_cost_usd"] == 0.5
    assert (result["suspended"], result["resume_pending"], result["resume_reason"]) == (
        True,
        False,
        "restart_timeout",
    )
    assert result["display_name"] == "Ann"
    for name in ("created_at", "updated_at"):
        assert datetime.fromisoformat(result[name]).utcoffset() is not None


def test_an_origin_comes_from_the_platform_or_else_from_the_store(db: SessionDB, folder: Path) -> None:
    where = Source("telegram", "42", "Ann", "dm", "42", "ann")
    begun(db, ANN, key="told", origin=where.to_dict())
    begun(db, ROOM, key="known")
    IndexFile(db, folder).write()
    result = read(folder)
    assert result["told"]["origin"] == where.to_dict()
    assert Source.from_dict(result["known"]["origin"]) == Source(
        "telegram", "-100", None, "group", thread_id="7"
    )


def test_the_file_is_written_only_if_its_content_changes(db: SessionDB, folder: Path) -> None:
    chat = begun(db, key=KEY)
    index = IndexFile(db, folder)
    assert index.write()
    assert not index.write()
    db.record_usage(chat, model="m", input_tokens=1)
    assert index.write()
    assert read(folder)[KEY]["input_tokens"] == 1
    db.trash_session(chat)
    assert index.write()
    assert read(folder) == {}


def test_the_file_is_private_and_replaced_atomically_through_a_link(
    db: SessionDB, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "real.json").write_text("{}")
    (folder / "sessions.json").symlink_to(elsewhere / "real.json")
    left = elsewhere / ".sessions_killed.tmp"
    left.write_text("half")
    begun(db, key=KEY)
    before = (elsewhere / "real.json").stat().st_ino
    IndexFile(db, folder).write()
    assert (folder / "sessions.json").is_symlink()
    assert KEY in read(folder)
    assert (elsewhere / "real.json").stat().st_ino != before
    assert stat.S_IMODE((elsewhere / "real.json").stat().st_mode) == 0o600
    assert os.listdir(elsewhere) == ["real.json"]


async def test_a_follower_writes_at_once_and_once_more_at_the_end(db: SessionDB, folder: Path) -> None:
    begun(db, key=KEY)
    index, stop = IndexFile(db, folder), asyncio.Event()
    following = asyncio.create_task(index.follow(stop))
    while not (folder / "sessions.json").exists():
        await asyncio.sleep(0.01)
    begun(db, ROOM, key="later")
    index.touch()
    stop.set()
    await following
    assert sorted(read(folder)) == [KEY, "later"]


def test_an_entry_is_updated_with_every_message_and_the_others_stay(db: SessionDB, folder: Path) -> None:
    chat = begun(db, key=KEY)
    begun(db, ROOM, key="other")
    index = IndexFile(db, folder)
    index.write()
    other = read(folder)["other"]
    later = time.time() + 3600
    for number in range(3):
        db.append_message(chat, "user" if number % 2 else "assistant", "hi", timestamp=later + 60 * number)
        assert index.write()
        assert datetime.fromisoformat(read(folder)[KEY]["updated_at"]).timestamp() == int(later) + 60 * number
    assert read(folder)["other"] == other


async def test_a_follower_sees_changes_of_any_process_within_a_second(db: SessionDB, folder: Path) -> None:
    """Messages, new chats and moved chats are detected without a call to the follower.

    The test checks that the pauses of the follower are shorter than a second. It does not check the time of
    the work between them, which depends on the machine.
    """
    assert sessions_json.LOOK_EVERY_S + sessions_json.LEAST_PAUSE_S < 1.0
    chat = begun(db, key=KEY)
    stop = asyncio.Event()
    following = asyncio.create_task(IndexFile(db, folder).follow(stop))

    async def follows(is_there: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(60):
            while not ((folder / "sessions.json").exists() and is_there(read(folder))):
                await asyncio.sleep(0.01)

    await follows(lambda told: KEY in told)
    with SessionDB(db.db_path) as other:
        at = time.time() + 60
        other.append_message(chat, "user", "hi", timestamp=at)
        await follows(lambda told: datetime.fromisoformat(told[KEY]["updated_at"]).timestamp() == int(at))
        begun(other, ROOM, key="later")
        await follows(lambda told: "later" in told)
        new = other.reset(chat, reason="idle", session_key=KEY)
        await follows(lambda told: told[KEY]["session_id"] == new)
    stop.set()
    await following


def test_a_write_with_many_chats_is_cheap(db: SessionDB, folder: Path) -> None:
    for number in range(400):
        begun(db, ANN._replace(user=str(number), chat=str(number)), key=f"key {number}")
    index = IndexFile(db, folder)
    began = time.thread_time()
    index.write()
    whole, costs = time.thread_time() - began, []
    assert index._cost == 0.0, "what follows the start is not held up by it"
    for number in range(5):
        db.routing.change_entry("key 7", partial(dict, last_prompt_tokens=number))
        assert index.write()
        costs.append(index._cost)
    assert min(costs) < whole / 2, "only what changed is composed again"
    assert read(folder)["key 7"]["last_prompt_tokens"] == 4


async def test_a_write_error_stops_nothing(db: SessionDB, folder: Path) -> None:
    folder.mkdir()
    (folder / "sessions.json").mkdir()
    index, stop = IndexFile(db, folder), asyncio.Event()
    stop.set()
    await index.follow(stop)
    assert list(folder.iterdir()) == [folder / "sessions.json"]
