"""An editor for tests: the client of the protocol's SDK, and `hermes acp` in a process of its own.

async with open_editor(workspace) as editor:
    session_id = await editor.start()
    await editor.ask(session_id, "hello")
    editor.text, editor.calls, editor.plan
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from acp import spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    SessionInfoUpdate,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
)

from tests.agent.openai_server import ModelServer

if TYPE_CHECKING:
    from acp import Client

COMMAND = (sys.executable, "-m", "hermes.cli.main", "acp")
PATIENCE_S = 30.0
NEVER = "never"
"""An answer to a permission request: the person does not decide."""


class Editor:
    """Records what the agent sends. `answer` is the option that the person chooses in every permission request."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.connection: ClientSideConnection
        self.process: Process
        self.answer = "allow"
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[tuple[ToolCallUpdate, list[str]]] = []
        self._changed = asyncio.Event()

    # ---------------------------------------------------------------- the side of the client

    def on_connect(self, _connection: Any) -> None:
        """Do nothing: `open_editor` sets the connection."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self._changed.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, [option.option_id for option in options]))
        self._changed.set()
        if self.answer == NEVER:
            await asyncio.Event().wait()
        if self.answer not in [option.option_id for option in options]:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer))

    # ---------------------------------------------------------------- the side of the person

    async def start(self, **more: Any) -> str:
        return (await self.connection.new_session(cwd=str(self.workspace), mcp_servers=[], **more)).session_id

    async def ask(self, session_id: str, *blocks: Any) -> str:
        """Send a prompt and return the reason why its answer ended."""
        prompt = [text_block(block) if isinstance(block, str) else block for block in blocks]
        return (await self.connection.prompt(session_id=session_id, prompt=prompt)).stop_reason

    async def call(self, method: str, **params: Any) -> Any:
        """Send a request as it is on the wire, for methods that the SDK's client does not have."""
        wire = attrgetter("_conn")(self.connection)
        return await wire.send_request(method, params)

    async def wait_until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def forget(self) -> None:
        """Forget what was recorded so far."""
        self.updates.clear()
        self.asked.clear()

    # ---------------------------------------------------------------- what was recorded

    def list_updates(self, *kinds: type[Any]) -> list[Any]:
        return [update for _, update in self.updates if isinstance(update, kinds)]

    @property
    def text(self) -> str:
        return "".join(_read(update) for update in self.list_updates(AgentMessageChunk))

    @property
    def thoughts(self) -> str:
        return "".join(_read(update) for update in self.list_updates(AgentThoughtChunk))

    @property
    def history(self) -> list[tuple[str, str]]:
        """The messages and tool calls in the order in which the editor shows them."""
        shown = []
        for _, update in self.updates:
            if isinstance(update, UserMessageChunk):
                shown.append(("user", _read(update)))
            elif isinstance(update, AgentMessageChunk):
                shown.append(("agent", _read(update)))
            elif isinstance(update, ToolCallStart):
                shown.append(("tool", update.title))
        return shown

    @property
    def ended_calls(self) -> list[ToolCallProgress]:
        ended = self.list_updates(ToolCallProgress)
        return [update for update in ended if update.status in ("completed", "failed")]

    @property
    def plan(self) -> list[tuple[str, str]]:
        plans = self.list_updates(AgentPlanUpdate)
        return [(entry.content, entry.status) for entry in plans[-1].entries] if plans else []

    @property
    def title(self) -> str | None:
        titles = [update.title for update in self.list_updates(SessionInfoUpdate)]
        return titles[-1] if titles else None


def _read(update: Any) -> str:
    return update.content.text if isinstance(update.content, TextContentBlock) else f"[{update.content.type}]"


@asynccontextmanager
async def open_editor(workspace: Path, *arguments: str, **variables: str) -> AsyncIterator[Editor]:
    """Start `hermes acp` as an editor does. Without `variables`, the offline model answers."""
    workspace.mkdir(exist_ok=True)
    editor = Editor(workspace)
    env = {**os.environ, "HERMES_MODEL": "offline", **variables}
    async with spawn_agent_process(
        cast("Client", editor), *COMMAND, *arguments, env=env, cwd=workspace, use_unstable_protocol=True
    ) as (connection, process):
        editor.connection, editor.process = connection, process
        await connection.initialize(protocol_version=1)
        yield editor


def use_model(server: ModelServer) -> dict[str, str]:
    """Return the variables with which the scripted model of a test answers."""
    return {"HERMES_MODEL": "small-model", "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "a key"}


def write_settings(home: Path, lines: Sequence[str]) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


NO_TITLES = ("agent:", "  auto_title: false")
"""The settings with which no model is asked for titles, so that a script contains the answers only."""
