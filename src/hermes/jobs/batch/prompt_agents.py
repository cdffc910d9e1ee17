"""The agents of a batch. All prompts share the model, the tools and the system prompt, unless a prompt names others.

The prompts of a batch must not influence each other. Therefore the agent's memory is not part of the system prompt,
and the tools that write or read what conversations share (`SHARING_TOOLS`) are given only to a prompt that names
them. No title is generated and nothing is saved to memory: nobody reads these sessions one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes import clock
from hermes.agent.components import AgentComponents, AgentInputs, ManualCompressor
from hermes.agent.context import tokens
from hermes.agent.models.model import Model, ModelError, Used
from hermes.agent.tool import Tool, make_schema
from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent, build_agent
from hermes.jobs.batch.prompt_file import Prompt
from hermes.jobs.batch.rate_gate import GatedModel, RateGate

if TYPE_CHECKING:
    from hermes.agent.factory import StandardFactory
    from hermes.agent.transcript import Record
    from hermes.db.session_db import AnyStore

SOURCE = "batch"
SHARING_TOOLS = ("memory", "skill_manage", "session_search")
EXPECTED_OUTPUT = 800
"""The number of output tokens that an answer is assumed to have until the first answers are known."""


def choose_model(factory: StandardFactory, wanted: str | None) -> str:
    """Return the name of the model for a new batch run: `wanted`, or else the default model. Raise `ModelError` if
    there is neither."""
    from hermes.agent.models.choice import HOW

    name = wanted or factory.settings.model.default
    if name is None:
        raise ModelError(f"no model is chosen: {HOW}, or use --model")
    return name


class BatchAgents:
    """Opens the model of a batch run and builds the agent of each prompt. Creating this object reads files."""

    def __init__(self, factory: StandardFactory, model: str, gate: RateGate, cwd: Path) -> None:
        self._factory, self._cwd = factory, cwd
        # The gate and the runner repeat requests, so the model must not.
        self.model: Model = GatedModel(factory.make_only_model(model, most_retries=0), gate)
        self.tools = {tool.name: tool for tool in factory.make_tools(False)}
        self._usual = [tool for name, tool in self.tools.items() if name not in SHARING_TOOLS]
        self._prompts: dict[tuple[str, ...], str] = {}
        self._parts = factory.parts()._replace(
            make_compressor=self._make_compressor, make_title=None, save=None
        )

    def _make_compressor(self, record: Record, working: AgentInputs) -> ManualCompressor:
        # An agent of an incognito conversation saves nothing to memory when it compresses its context.
        return self._factory.make_compressor(record, working._replace(incognito=True))

    def list_tools(self, prompt: Prompt) -> Sequence[Tool]:
        return self._usual if prompt.tools is None else [self.tools[name] for name in prompt.tools]

    def compute_price(self, used: Used) -> float | None:
        """Return the cost in dollars of a model request that used these tokens. None if the price of the model is
        unknown."""
        return self._factory.price(self.model.name, used)[0]

    def estimate_cost(self, prompt: Prompt) -> float:
        """Return the probable cost in dollars of answering a prompt without tools. 0 if the price of the model is
        unknown."""
        tools = self.list_tools(prompt)
        size = tokens.count_text(prompt.prompt) + tokens.count_tools(map(make_schema, tools))
        size += tokens.count_text(prompt.system or self._build_prompt(tools))
        return self.compute_price(Used(size, EXPECTED_OUTPUT)) or 0.0

    def _build_prompt(self, tools: Sequence[Tool]) -> str:
        """Return the system prompt for an agent with these tools. It is built once for each set of tools and stays the
        same, so that providers can cache it."""
        from hermes.agent.prompt.memory_files import Memory
        from hermes.agent.prompt.skill_files import Skills
        from hermes.agent.prompt.system_prompt import build_system_prompt

        names = tuple(tool.name for tool in tools)
        if names not in self._prompts:
            self._prompts[names] = build_system_prompt(
                tools=tools,
                cwd=self._cwd,
                source=SOURCE,
                model=self.model.name,
                started_at=clock.now(),
                memory=Memory(None) if "memory" in names else None,
                skills=Skills(None),
            )
        return self._prompts[names]

    async def get_system_prompt(self, prompt: Prompt) -> str:
        if prompt.system is not None:
            return prompt.system
        tools = self.list_tools(prompt)
        known = self._prompts.get(tuple(tool.name for tool in tools))
        return await asyncio.to_thread(self._build_prompt, tools) if known is None else known

    def for_prompt(self, prompt: Prompt) -> PromptAgents:
        async def make_prompt(_working: AgentInputs) -> str:
            return await self.get_system_prompt(prompt)

        parts = self._parts._replace(make_prompt=make_prompt)
        return PromptAgents(parts, self.model, self.list_tools(prompt), self._cwd)

    async def close(self) -> None:
        await self._factory.close()
        await self.model.close()


class PromptAgents:
    """Builds the agent that answers one prompt of a batch. The model is shared with the other prompts."""

    def __init__(self, parts: AgentComponents, model: Model, tools: Sequence[Tool], cwd: Path) -> None:
        self._parts, self._model, self._tools, self._cwd = parts, model, tools, cwd

    def get_components(self, _scope: AgentScope) -> AgentComponents:
        return self._parts

    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        return build_agent(self._parts, scope, store, record, self._model, self._tools, self._cwd)

    async def close(self) -> None:
        """Do nothing: `BatchAgents.close` closes the model that all prompts share."""
