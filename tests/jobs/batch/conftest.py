"""A model server that answers many prompts at once, and a batch that runs in the process of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes.jobs.batch.launcher import RunRequest, execute_run, open_run
from hermes.jobs.batch.runner import RunOptions, Summary
from hermes_state import SessionDB
from tests.agent.openai_server import Asked, ModelServer, Reply, says, usage
from tests.cli.conftest import hermes

__all__ = ["hermes"]

MODEL = "gpt-4o-mini"
"""A model whose price is known: 0.15 and 0.60 dollars for a million tokens."""
USED = usage(prompt_tokens=1_000, completion_tokens=100)
COST = 0.00021


class AnsweringServer(ModelServer):
    """Answers every prompt with `answer to PROMPT`, or with what `reply` returns for the prompt."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.reply: Callable[[str, Asked], Reply | None] = lambda _prompt, _asked: None
        self._counting = threading.Lock()
        self.asked: list[str] = []
        """The prompts in the order of the requests."""

    def take(self, asked: Asked) -> Reply:
        prompt = [message["content"] for message in asked.body["messages"] if message["role"] == "user"][-1]
        with self._counting:
            self.requests.append(asked)
            self.asked.append(prompt)
        return self.reply(prompt, asked) or says(f"answer to {prompt}", used=USED)


class Finished(NamedTuple):
    summary: Summary
    rows: list[dict[str, Any]]
    """The lines of results.jsonl."""


RunBatch = Callable[..., Finished]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnsweringServer]:
    """Start the server, and select it in the settings."""
    server = AnsweringServer()
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("HERMES_MODEL", MODEL)
    yield server
    server.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run_batch(db: SessionDB, out: Path, tmp_path: Path) -> RunBatch:
    """Return a function that runs prompts and returns when the run is over."""

    def run(
        *prompts: str | dict[str, Any], resumes: bool = False, retries: bool = False, **options: Any
    ) -> Finished:
        file = None if retries else write_prompts(tmp_path, *prompts)
        chosen = RunOptions(**options)
        opened = open_run(RunRequest(out, chosen, file, resumes=resumes, retries_failed=retries), db.db_path)
        with opened.state:
            summary, _ = asyncio.run(
                execute_run(opened, db, chosen, on_begin=lambda _: None, on_result=lambda *_: None)
            )
        return Finished(summary, read_lines(out / "results.jsonl"))

    return run


def write_prompts(folder: Path, *prompts: str | dict[str, Any]) -> Path:
    file = folder / "prompts.jsonl"
    fields = [prompt if isinstance(prompt, dict) else {"prompt": prompt} for prompt in prompts]
    file.write_text("".join(json.dumps(prompt) + "\n" for prompt in fields), encoding="utf-8")
    return file


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
