"""An engine that runs every write twice. A retry does the same if the result of a commit is unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_state import SessionDB


class RepeatingEngine:
    """Runs each write a second time, although the first commit has succeeded."""

    def __init__(self, db: SessionDB) -> None:
        self._engine: Any = db._engine

    def write(self, work: Callable[[Any], Any], **how: Any) -> Any:
        self._engine.write(work, **how)

        def again(writer: Any) -> Any:
            writer.repeating = True
            try:
                return work(writer)
            finally:
                writer.repeating = False

        return self._engine.write(again, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
