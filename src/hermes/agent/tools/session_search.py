"""`session_search`: search earlier conversations. `hermes.recall.tool.search_tool` implements it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes.agent.tool import ToolContext, ToolFailed
from hermes.recall.tool.tool_schema import SCHEMA

if TYPE_CHECKING:
    from hermes.agent.session_summaries import SessionSummaries, Summariser

FAILED = '{"success":false'


class SessionSearch:
    name: str = SCHEMA["name"]
    description: str = SCHEMA["description"]
    parameters: Mapping[str, Any] = SCHEMA["parameters"]

    def __init__(self, summaries: SessionSummaries | None = None) -> None:
        """`summaries` provides a model for the argument `summarize`. Without it, results contain the messages
        themselves."""
        self._summaries = summaries

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        if self._summaries is None or not arguments.get("summarize"):
            answer = await self._search(arguments, context, None)
        else:
            async with self._summaries.summariser(context.db, context.session_id) as summariser:
                answer = await self._search(arguments, context, summariser)
        if answer.startswith(FAILED):
            raise ToolFailed(json.loads(answer)["error"])
        return answer

    async def _search(
        self, arguments: dict[str, Any], context: ToolContext, summariser: Summariser | None
    ) -> str:
        from hermes.recall.tool.search_tool import session_search
        from hermes.recall.tool.summaries import TRANSCRIPT

        return await asyncio.to_thread(
            session_search,
            context.db,
            arguments,
            current_session=context.session_id,
            summarise=summariser,
            transcript_size=TRANSCRIPT if summariser is None else summariser.transcript_size,
        )
