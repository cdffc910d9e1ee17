"""Background tasks of a conversation: generating a title, writing a transcript, ending a session."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes.conversation.agents import LiveRecord


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], LiveRecord | None] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, object], ending: LiveRecord | None = None) -> None:
        """Start a background task that runs the coroutine `work`. If it ends a session, `ending` is the record of that
        session."""
        task = asyncio.create_task(work)
        self._tasks[task] = ending
        task.add_done_callback(lambda task: self._tasks.pop(task, None))

    async def wait(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def end_session_now(self, session_id: str) -> None:
        """Wait for the background task that ends the session `session_id`, because the session is about to be entered
        again. The task skips its optional work, such as saving facts to memory."""
        tasks = [
            task
            for task, ending in self._tasks.items()
            if ending is not None and ending.session_id == session_id
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def cancel(self, grace: float) -> None:
        """Wait up to `grace` seconds for all background tasks, then cancel those that are not done."""
        if self._tasks and grace:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await self.wait()
