"""Support for tests that need a sandbox, such as tests of stored approvals."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.tools.access import Access
from hermes.home import get_default_db_path


def require_sandbox(folder: Path) -> None:
    """Skip the test on a machine that has no sandbox for this folder."""
    access = Access()
    try:
        sandbox = access.choose_sandbox(folder, get_default_db_path())
    finally:
        access.close()
    if not sandbox.is_there:
        pytest.skip(f"no sandbox is to be had: {sandbox.reason}")
