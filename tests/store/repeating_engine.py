"""An engine that does everything twice, as after a commit that may not have lasted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_state import SessionDB


class RepeatingEngine:
    """Each work is done a second time, though the first commit lasted."""

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
