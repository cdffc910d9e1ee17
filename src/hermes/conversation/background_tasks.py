"""Work that goes on behind a conversation: titles, transcripts, the end of a session that was left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], str | None] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, object], ending: str | None = None) -> None:
        """`ending` is the session that the work ends."""
        task = asyncio.create_task(work)
        self._tasks[task] = ending
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    async def wait(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hurry(self, session_id: str) -> None:
        """Have a session ended now, without what else is done before that: it is entered again."""
        tasks = [task for task, ending in self._tasks.items() if ending == session_id]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def cancel(self, grace: float) -> None:
        """Cancel what is not done after `grace` seconds."""
        if self._tasks and grace:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await self.wait()
