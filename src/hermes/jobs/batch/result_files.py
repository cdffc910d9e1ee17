"""The files that a run writes for its user.

    results.jsonl                one line for each finished prompt, in the order of the prompt file
    trajectories.jsonl           the conversations of the answered prompts, in the documented training format
    failed_trajectories.jsonl    those of the failed prompts
    sessions.jsonl               the sessions as `hermes sessions export` writes them

While a run works, `results.jsonl` grows with each prompt whose predecessors are finished. At the end of a run, also of
an interrupted one, all files are written anew and replaced one by one, each atomically. They are derived from the
journal and the store, so they can be written again at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock, home
from hermes.agent.tool import Tool, make_schema
from hermes.atomic_files import write_new_file
from hermes.export import jsonl
from hermes.export.plan import plan_conversation
from hermes.jobs.batch.prompt_agents import BatchAgents
from hermes.jobs.batch.prompt_file import Prompt
from hermes.jobs.batch.run_state import Result, RunRefused, RunState
from hermes.jobs.batch.trajectory import make_turns

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

RESULTS, TRAJECTORIES = "results.jsonl", "trajectories.jsonl"
FAILED_TRAJECTORIES, SESSIONS = "failed_trajectories.jsonl", "sessions.jsonl"
FILES = (RESULTS, TRAJECTORIES, FAILED_TRAJECTORIES, SESSIONS)
FAILURE = "error:"
"""The beginning of the result of a tool call that failed."""

Session = dict[str, Any]


def check_files(folder: Path, prompt_file: Path | None) -> None:
    """Raise `RunRefused` if a new batch run would overwrite a file in its folder: the prompt file, or a file that
    exists already."""
    for name in FILES:
        file = folder / name
        if prompt_file is not None and file.resolve() == prompt_file.resolve():
            raise RunRefused(f"the run would replace its prompt file {prompt_file}; choose another --out")
        if file.exists():
            raise RunRefused(
                f"{folder} already has a file {name}, which is not of a batch; choose another --out"
            )


def make_row(prompt: Prompt, result: Result, model: str) -> dict[str, Any]:
    """Return a line of `results.jsonl` as a dictionary: a prompt with its result."""
    return {
        "id": prompt.id,
        "prompt": prompt.prompt,
        "answer": result.answer,
        "status": result.status,
        "error": result.error,
        "attempts": result.attempts,
        "tokens": {name: getattr(result.tokens, name) for name in result.tokens.__struct_fields__},
        "cost_usd": result.cost_usd,
        "seconds": round(result.seconds, 3),
        "model": model,
        "session_id": result.session_id,
        "metadata": prompt.metadata or {},
    }


class GrowingResults:
    """The file `results.jsonl` while the batch run works. Each line is written with one call, so that other programs
    never read half a line."""

    def __init__(self, state: RunState) -> None:
        self._state, self._next = state, 1
        with write_new_file(state.folder / RESULTS, replace=True) as stream:
            stream.writelines(self._take_lines())
        self._file = home.open_private_file(state.folder / RESULTS, os.O_WRONLY | os.O_APPEND)

    def extend(self) -> None:
        """Append to `results.jsonl` the results of the next prompts in the order of the prompt file, up to the first
        prompt that is not finished."""
        for line in self._take_lines():
            os.write(self._file, line)

    def _take_lines(self) -> Iterator[bytes]:
        state = self._state
        while self._next <= state.total and (result := state.read_result(self._next)) is not None:
            row = make_row(state.read_prompt(self._next), result, state.info.model)
            self._next += 1
            yield jsonl.format_line(row).encode()

    def close(self) -> None:
        os.close(self._file)


class Written(NamedTuple):
    results: int
    missing: int
    """The number of results whose session is no longer in the store. They have no trajectory."""


def write_files(
    db: SessionDB,
    state: RunState,
    agents: BatchAgents,
    report: Callable[[int], object] = lambda _count: None,
) -> Written:
    """Write the result files of a batch run. At most one conversation is in memory at a time. `report` is called with
    the number of results written so far."""
    results = missing = 0
    with ExitStack() as stack:
        streams = {
            name: stack.enter_context(write_new_file(state.folder / name, replace=True)) for name in FILES
        }
        for number, prompt, result in state.list_results():
            row = make_row(prompt, result, state.info.model)
            streams[RESULTS].write(jsonl.format_line(row).encode())
            results += 1
            report(results)
            plan = plan_conversation(db, result.session_id)
            if not plan.conversations:
                missing += 1
                continue
            sessions: dict[str, Session] = {}

            def load(session_id: str, sessions: dict[str, Session] = sessions) -> Session | None:
                if session_id not in sessions and (session := db.export_session(session_id)) is not None:
                    sessions[session_id] = session
                return sessions.get(session_id)

            conversation = plan.conversations[0]
            for line in jsonl.write([conversation], load):
                streams[SESSIONS].write(line.encode(errors="replace"))
            name = TRAJECTORIES if result.status == "done" else FAILED_TRAJECTORIES
            made = make_trajectory(
                number, prompt, result, list(sessions.values()), agents.list_tools(prompt), agents.tools
            )
            streams[name].write(jsonl.format_line(made).encode(errors="replace"))
    return Written(results, missing)


def make_trajectory(
    number: int,
    prompt: Prompt,
    result: Result,
    sessions: Sequence[Session],
    tools: Sequence[Tool],
    every_tool: Collection[str],
) -> dict[str, Any]:
    """Return a line of `trajectories.jsonl` as a dictionary. It has the fields that the reference documents for batches
    and those of a single trajectory. This program has no sets of tools, so `toolsets_used` lists the tools of the
    prompt."""
    statistics = _count_calls(sessions, every_tool)
    return {
        "prompt_index": number - 1,
        "conversations": make_turns(sessions, [make_schema(tool) for tool in tools]),
        "metadata": {"id": prompt.id, "session_id": result.session_id, **(prompt.metadata or {})},
        "completed": result.status == "done",
        "partial": result.status != "done" and any(session["messages"] for session in sessions),
        "api_calls": sum(session.get("api_call_count") or 0 for session in sessions),
        "toolsets_used": [tool.name for tool in tools],
        "tool_stats": statistics,
        "tool_error_counts": {name: counts["failure"] for name, counts in statistics.items()},
        "timestamp": clock.format_iso(sessions[-1].get("last_active")),
        "model": sessions[-1].get("model") or "unknown",
    }


def _count_calls(sessions: Sequence[Session], names: Collection[str]) -> Mapping[str, dict[str, int]]:
    """Return for each tool how often it was called in these sessions, and how many of the calls succeeded and failed.
    `names` are the tools to include even if they were not called, so that all lines of the file have the same
    fields."""
    counts = {name: {"count": 0, "success": 0, "failure": 0} for name in names}
    for session in sessions:
        for message in session["messages"]:
            if message["role"] != "tool" or not message.get("active", 1):
                continue
            tool = counts.setdefault(
                message.get("tool_name") or "unknown", {"count": 0, "success": 0, "failure": 0}
            )
            has_failed = str(message.get("content") or "").startswith(FAILURE)
            tool["count"] += 1
            tool["failure" if has_failed else "success"] += 1
    return counts
