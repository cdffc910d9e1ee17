"""Makes the fixtures of tests/interface/conftest.py available here."""

from __future__ import annotations

from tests.interface.conftest import shelf

__all__ = ["shelf"]
