"""The store for many examples. The tests of the interface define it."""

from __future__ import annotations

from tests.interface.conftest import shelf

__all__ = ["shelf"]
