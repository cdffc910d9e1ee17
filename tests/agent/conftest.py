"""Fixtures of the tests of the agent."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def mark() -> str:
    """Return a unique number of seconds for `sleep`, by which the process is found."""
    return f"9{uuid.uuid4().int % 10**9:09}"
