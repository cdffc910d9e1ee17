"""The store for many examples, shared with the tests of the interface."""

from __future__ import annotations

from tests.interface.conftest import shelf

__all__ = ["shelf"]
