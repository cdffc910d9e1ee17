"""Work that goes on behind a conversation: titles, transcripts, the end of a session that was left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel(self, grace: float) -> None:
        """Cancel what is not done after `grace` seconds."""
        if self._tasks and grace:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await self.wait()
