"""The store for many examples that the tests of the interface use."""

from __future__ import annotations

from tests.interface.conftest import shelf

__all__ = ["shelf"]
