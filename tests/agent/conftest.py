"""Fixtures of the tests of the agent."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def mark() -> str:
    """Return a unique number of seconds for `sleep`. The test finds the process by this number in its command
    line."""
    return f"9{uuid.uuid4().int % 10**9:09}"
