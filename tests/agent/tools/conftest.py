"""Fixtures for tools: a folder, a store with one conversation, and a person who answers approval questions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.agent.approvals.request import ALLOW_ONCE, ApprovalRequest, Decision
from hermes.agent.tool import ToolContext
from hermes.agent.tools.access import Access
from hermes.agent.tools.background_processes import BackgroundProcesses
from hermes_state import SessionDB


class Person:
    """Answers approval questions and records them."""

    def __init__(self) -> None:
        self.says = ALLOW_ONCE
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return self.says


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def context(db: SessionDB, folder: Path, person: Person) -> ToolContext:
    db.create_session("here", "cli")
    return ToolContext(db, "here", folder, person.approve, asyncio.Event())


@pytest.fixture
def access() -> Iterator[Access]:
    made = Access()
    yield made
    made.close()


@pytest.fixture
def processes() -> Iterator[BackgroundProcesses]:
    made = BackgroundProcesses()
    yield made
    made.close()
