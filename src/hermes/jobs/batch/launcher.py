"""Starts and continues batch runs. First checks the folder, the prompts, the model and the budget. Then runs the
prompts and writes the result files.

All checks are made before the first model request, so a batch run that is refused has cost nothing and changed nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes.agent.factory import StandardFactory
from hermes.agent.models.model import Used
from hermes.jobs.batch.prompt_agents import BatchAgents, choose_model
from hermes.jobs.batch.prompt_file import Prompt, read_prompts
from hermes.jobs.batch.rate_gate import RateGate
from hermes.jobs.batch.result_files import GrowingResults, Written, check_files, write_files
from hermes.jobs.batch.run_state import (
    Result,
    RunInfo,
    RunRefused,
    RunState,
    create_run,
    digest_prompts,
    find_run,
    require_run,
)
from hermes.jobs.batch.runner import BatchRunner, RunOptions, Summary

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


class RunRequest(NamedTuple):
    folder: Path
    options: RunOptions
    file: Path | None = None
    """The prompt file; None to continue the run of the folder with the prompts that it has."""
    model: str | None = None
    resumes: bool = False
    retries_failed: bool = False
    """Queue the failed prompts again."""


class OpenedRun(NamedTuple):
    state: RunState
    agents: BatchAgents
    gate: RateGate
    is_resumed: bool
    cwd: Path


def open_run(request: RunRequest, store: Path, factory: StandardFactory | None = None) -> OpenedRun:
    """Check the request for a batch run, create the folder of the run if the run is new, and lock it. Raise
    `HermesError` if the request is refused."""
    factory = factory or StandardFactory(is_job=True)
    folder, file = request.folder, request.file
    if folder.exists() and not folder.is_dir():
        raise RunRefused(f"{folder} is not a folder")
    info = require_run(folder) if file is None else find_run(folder)
    if info is not None:
        _check_same_run(request, info, store)
    gate = RateGate()
    agents = BatchAgents(
        factory, choose_model(factory, request.model) if info is None else info.model, gate, Path.cwd()
    )
    if request.options.budget_usd is not None and agents.compute_price(Used(1, 1)) is None:
        raise RunRefused(
            f"the price of {agents.model.name} is unknown, so a budget cannot be kept;"
            f" set its price in config.yaml (`prices`), or leave --budget out"
        )
    if info is None:
        assert file is not None
        check_files(folder, file)
        digest_prompts(read_prompts(file, agents.tools))  # check all lines before a folder is made
        info = create_run(
            folder, read_prompts(file, agents.tools), file=file, model=agents.model.name, store=store
        )
        is_resumed = False
    else:
        if file is not None:
            _check_same_prompts(file, agents, info, folder)
        is_resumed = True
    state = RunState(folder, writes=True)
    if request.retries_failed and not state.requeue_failed():
        state.close()
        raise RunRefused(f"no prompt of {folder} has failed")
    return OpenedRun(state, agents, gate, is_resumed, Path.cwd())


def _check_same_run(request: RunRequest, info: RunInfo, store: Path) -> None:
    folder = request.folder
    if not (request.resumes or request.retries_failed):
        raise RunRefused(f"{folder} already has a run; continue it with --resume, or choose another --out")
    if request.model not in (None, info.model):
        raise RunRefused(
            f"the run in {folder} uses the model {info.model}; another model needs another --out"
        )
    if str(store) != info.store:
        raise RunRefused(f"the run in {folder} uses the store {info.store}; add --store {info.store}")


def _check_same_prompts(file: Path, agents: BatchAgents, info: RunInfo, folder: Path) -> None:
    if digest_prompts(read_prompts(file, agents.tools)) != info.digest:
        raise RunRefused(f"the prompts of {file} are not those of the run in {folder}; choose another --out")


async def execute_run(
    opened: OpenedRun,
    db: SessionDB,
    options: RunOptions,
    *,
    on_begin: Callable[[BatchRunner], object],
    on_result: Callable[[Prompt, Result], object],
    on_wait: Callable[[str], object] = lambda _problem: None,
    on_writing: Callable[[int], object] = lambda _count: None,
) -> tuple[Summary, Written]:
    """Run the prompts of a batch run and write its result files. `on_begin` is called with the runner, so that the
    caller can follow and stop it."""
    state, agents = opened.state, opened.agents
    growing = await asyncio.to_thread(GrowingResults, state)

    def handle_result(_number: int, prompt: Prompt, result: Result) -> None:
        growing.extend()
        on_result(prompt, result)

    try:
        runner = BatchRunner(
            db,
            state,
            agents,
            opened.gate,
            options,
            opened.cwd,
            is_resumed=opened.is_resumed,
            on_result=handle_result,
            on_wait=on_wait,
        )
        on_begin(runner)
        summary = await runner.run()
    finally:
        growing.close()
        await agents.close()
    written = await asyncio.to_thread(write_files, db, state, agents, on_writing)
    return summary, written
