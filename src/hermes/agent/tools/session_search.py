"""`session_search`: recall earlier conversations. What it does is in `hermes.recall.session_search`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes.agent.tool import ToolContext, ToolFailed
from hermes.recall.asking import SCHEMA

if TYPE_CHECKING:
    from hermes.recall.summaries import Summarise

FAILED = '{"success":false'


class SessionSearch:
    name: str = SCHEMA["name"]
    description: str = SCHEMA["description"]
    parameters: Mapping[str, Any] = SCHEMA["parameters"]

    def __init__(self, summarise: Summarise | None = None) -> None:
        self._summarise = summarise

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        from hermes.recall.session_search import session_search

        answer = await asyncio.to_thread(
            session_search,
            context.db,
            arguments,
            current_session=context.session_id,
            summarise=self._summarise,
        )
        if answer.startswith(FAILED):
            raise ToolFailed(json.loads(answer)["error"])
        return answer
