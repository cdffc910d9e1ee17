"""Fills a home with the sample conversations. It uses the normal store methods, with times in the past."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock
from hermes.demo.samples import BATCH, LONG_PROJECT, NIGHTLY, SAMPLES, SUMMARIES, Sample

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

MINUTE = 60.0
NIGHTS, TICKETS = 14, 6
PER_MILLION = {"anthropic/claude-sonnet-4.5": (3.0, 15.0), "openai/gpt-5-mini": (0.25, 2.0)}
"""Prices per model: dollars per million input tokens and per million output tokens. Samples of other models
have no known cost."""


def fill_home(db: SessionDB, workspace: Path) -> int:
    """Store every sample conversation in `db`, and return the number of sessions stored. `workspace` is the
    project folder to which the samples about work belong."""
    now = clock.now()
    for number, sample in enumerate(SAMPLES):
        _store_sample(db, _make_id(now, sample.days_ago, number), sample, now, workspace)
    _store_long_project(db, now, workspace)
    for night in range(NIGHTS):
        nightly = Sample("cron", night + 0.3, None, NIGHTLY, "openai/gpt-5-mini", (600, 60))
        _store_sample(
            db, f"cron_nightly_{clock.format_stamp(now - night * clock.DAY)[:8]}", nightly, now, workspace
        )
    for number in range(TICKETS):
        texts = (BATCH[0].format(number=4000 + number), BATCH[1])
        ticket = Sample("batch", 3.0 + number / 100, None, texts, "openai/gpt-5-mini", (200, 10))
        _store_sample(db, _make_id(now, ticket.days_ago, 100 + number), ticket, now, workspace)
    db.pin_session(_make_id(now, SAMPLES[4].days_ago, 4))
    db.set_session_archived(_make_id(now, SAMPLES[-1].days_ago, len(SAMPLES) - 1), True)
    return db.session_count()


def _make_id(now: float, days_ago: float, number: int) -> str:
    """Return the id of a sample session, in the usual format. The id depends on the day, so that the demo gives
    the same ids whenever it is started on the same day."""
    return f"{clock.format_stamp(now - days_ago * clock.DAY)}_{number * 2654435761 % 2**32:08x}"


def _store_sample(db: SessionDB, session_id: str, sample: Sample, now: float, workspace: Path) -> None:
    at = now - sample.days_ago * clock.DAY
    place = str(workspace) if "work" in sample.tags else None
    db.create_session(
        session_id, sample.source, model=sample.model, started_at=at, workspace=place, cwd=place
    )
    last = _store_messages(db, session_id, sample.texts, at, sample)
    if sample.title:
        db.set_session_title(session_id, sample.title)
    if sample.tags:
        db.add_tags(session_id, *sample.tags)
    if sample.days_ago > 1 or sample.source in ("cron", "batch"):
        db.end_session(session_id, "cli_close")
        db.raw().execute("UPDATE sessions SET ended_at = ? WHERE id = ?", (last, session_id))


def _store_messages(db: SessionDB, session_id: str, texts: Sequence[str], at: float, sample: Sample) -> float:
    """Store each of `texts` as a message of the session, one minute apart, beginning one minute after the time
    `at`. Return the time of the last message."""
    tool_calls: list[dict[str, Any]] = []
    for number, line in enumerate(texts):
        at += MINUTE
        if line.startswith("→ "):
            name, arguments = line[2:].split(" ", 1)
            tool_calls = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
            ]
            json.loads(arguments)
            db.append_message(session_id, "assistant", None, tool_calls=tool_calls, timestamp=at)
            _store_usage(db, session_id, sample, at)
        elif line.startswith("← "):
            call = tool_calls[0]
            name = call["function"]["name"]
            db.append_message(
                session_id, "tool", line[2:], tool_name=name, tool_call_id=call["id"], timestamp=at
            )
        else:
            role, text = line.split(": ", 1)
            db.append_message(session_id, role, text, timestamp=at)
            if role == "assistant":
                _store_usage(db, session_id, sample, at)
    return at


def _store_usage(db: SessionDB, session_id: str, sample: Sample, at: float) -> None:
    if sample.tokens is None:
        db.record_usage(session_id, model=sample.model, cost_status="unknown", at=at)
        return
    tokens_in, tokens_out = sample.tokens
    price = PER_MILLION.get(sample.model)
    cost = None if price is None else (tokens_in * price[0] + tokens_out * price[1]) / 1e6
    db.record_usage(
        session_id,
        model=sample.model,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        estimated_cost_usd=cost,
        cost_status="unknown" if cost is None else "estimated",
        at=at,
    )


def _store_long_project(db: SessionDB, now: float, workspace: Path) -> None:
    """Store a conversation of three sessions, a branch of it, and a subagent session."""
    sample = Sample("cli", 4.0, "schema migration", LONG_PROJECT[0], tags=("work",))
    session_id = _make_id(now, sample.days_ago, 200)
    _store_sample(db, session_id, sample._replace(days_ago=4.0), now, workspace)
    db.reopen_session(session_id)
    for number, summary in enumerate(SUMMARIES):
        days_ago = 3.0 - number
        child = _make_id(now, days_ago, 201 + number)
        carried = [row["id"] for row in db.get_messages(session_id)[-2:]]
        db.begin_continuation(
            session_id, summary, carried, session_id=child, started_at=now - days_ago * clock.DAY
        )
        _store_messages(db, child, LONG_PROJECT[number + 1], now - days_ago * clock.DAY, sample)
        session_id = child
    branch = db.branch(session_id, end_parent=False, title="schema migration, in one step")
    db.append_message(branch, "user", "What if we had done it in one step?")
    helper = db.delegate(session_id)
    db.append_message(helper, "user", "Compare the checksums of both copies")
    db.append_message(helper, "assistant", "They agree, all 1,204,551 of them.")
