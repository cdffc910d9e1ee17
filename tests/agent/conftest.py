"""What tests of the agent share."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture
def mark() -> str:
    """Seconds for `sleep` that nobody else sleeps, by which the process is found."""
    return f"9{uuid.uuid4().int % 10**9:09}"
