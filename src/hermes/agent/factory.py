"""The standard components of an agent. Only this module imports the implementations of all components.

Every import and every read of a file is deferred until it is needed, so that the terminal program accepts input
at once. If several people use one process, each person has a separate home for memory and skills, and all share
the expensive components (see `for_person`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import clock, errors
from hermes.agent.agent import Agent
from hermes.agent.components import (
    LEAST_SAID,
    AgentComponents,
    AgentInputs,
    ListedModels,
    ManualCompressor,
    ModelChoice,
)
from hermes.agent.models.model import CallReport, Model, Used
from hermes.agent.tool import Tool
from hermes.agent.transcript import Record

if TYPE_CHECKING:
    from hermes.agent.approvals.grants import Grants
    from hermes.agent.delegation import Delegation
    from hermes.agent.edit_journal import EditJournal
    from hermes.agent.memory_flush import MemorySaver
    from hermes.agent.models.fallback import Cooldowns
    from hermes.agent.models.prices import Prices
    from hermes.agent.subagents import Subagents, TaskQuota
    from hermes.agent.tools.access import Access
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.config.settings_schema import Settings
    from hermes.db.session_db import AnyStore

LISTING_S = 5.0
"""How long an endpoint may take to list its models when a person switches to another model."""
SAVING = ("memory", "skills_list", "skill_view", "skill_manage")
"""The tools of a memory flush."""
FOR_EVERYBODY = (*SAVING, "session_search", "todo", "delegate_task")
"""The tools that access only the person's own data. All other tools are reserved for owners of the machine.
"""


def make_standard_components(
    *,
    is_job: bool = False,
    surface_decides: bool = False,
    make_more_tools: Callable[[], Sequence[Tool]] = tuple,
) -> AgentComponents:
    return StandardFactory(
        is_job=is_job, surface_decides=surface_decides, make_more_tools=make_more_tools
    ).parts()


def list_inferior_models(settings: Settings) -> set[str]:
    """Return the models whose titles and summaries are worse than those made by rules without a model. These
    are the offline model, and the small local model unless the settings name it as the auxiliary model."""
    from hermes.agent.models import local
    from hermes.agent.models.choice import OFFLINE

    return {OFFLINE} if settings.auxiliary.model == local.NAME else {OFFLINE, local.NAME}


class StandardFactory:
    def __init__(
        self,
        *,
        home: Path | None = None,
        machine: bool = True,
        shared: bool = False,
        is_job: bool = False,
        has_quota: bool = False,
        surface_decides: bool = False,
        grants: Grants | None = None,
        make_more_tools: Callable[[], Sequence[Tool]] = tuple,
    ) -> None:
        """`home` is the folder for memory and skills, if it differs from the program's home.

        If `machine` is False, no tool can access the machine. `shared`: several people share a room.
        `is_job`: no person watches the run, so its commands have no network access unless a setting allows
        it. `has_quota`: the tasks that each person gives to subagents are counted.
        `surface_decides`: tools ask in the mode `auto` as in the mode `ask`, because the surface has a mode for
        each conversation and answers for the person.

        `grants` are the only consents of an agent that works without a person. It then has neither memory nor the
        approval mode of the settings: what the grants do not cover needs an approval. `make_more_tools` makes the
        tools of surfaces, which only an owner of the machine gets.
        """
        self._home, self._machine, self._shared, self._is_job = home, machine, shared, is_job
        self._has_quota, self._surface_decides = has_quota, surface_decides
        self._grants, self._make_more_tools = grants, make_more_tools
        self._savers: dict[str, MemorySaver] = {}
        self._journals: dict[bool, EditJournal] = {}
        self._wish = ModelChoice()
        self.observe_call: Callable[[CallReport, float | None], None] = lambda _report, _cost: None
        """Called after each attempt of a model call, with its cost; the cost is None if it is unknown."""
        self._is_part = False

    def for_person(
        self, home: Path | None, *, machine: bool, shared: bool = False, has_quota: bool = True
    ) -> StandardFactory:
        """Return a factory for another person. The new factory has its own memory and skills. It shares the
        settings, prices, auxiliary model, background processes, subagents, task quota and access to the
        machine with this factory."""
        theirs = StandardFactory(
            home=home,
            machine=machine,
            shared=shared,
            has_quota=has_quota,
            make_more_tools=self._make_more_tools,
        )
        theirs._is_part = True
        in_common = (
            *("settings", "prices", "cooldowns", "processes", "subagents", "task_quota", "access"),
            "auxiliary",
        )
        theirs.__dict__.update({name: getattr(self, name) for name in in_common})
        return theirs

    def renew(self) -> StandardFactory:
        """Return a copy of this factory that reads the settings again. The copy shares the background processes, the
        subagents and the access of tools to the machine with this factory."""
        renewed = copy(self)
        for name in ("settings", "prices", "auxiliary"):
            renewed.__dict__.pop(name, None)
        renewed._savers = {}
        return renewed

    def get_open_auxiliary(self) -> Model | None:
        """Return the auxiliary model if it is already open; otherwise None. This method does not open the
        model."""
        return self.__dict__.get("auxiliary")

    def parts(self) -> AgentComponents:
        return AgentComponents(
            self.make_model,
            self.make_tools,
            self.make_prompt,
            self.price,
            list_models=self.list_models,
            get_most_steps=lambda: self.settings.agent.max_steps,
            make_compressor=self.make_compressor,
            make_title=self.make_title,
            save=self.save,
            memory=self.memory,
            skills=self.skills,
            stop_processes=self.stop_processes,
            list_processes=self.list_processes,
            edits=self.get_journal,
            subagents=lambda: self.subagents,
            keep_setting=self.keep_setting,
            warning=lambda: self.settings.warning,
            close=self.close,
        )

    @cached_property
    def settings(self) -> Settings:
        from hermes.config.settings import read_settings

        return read_settings()

    @cached_property
    def prices(self) -> Prices:
        from hermes.agent.models.prices import Prices

        return Prices(self.settings.prices)

    @cached_property
    def cooldowns(self) -> Cooldowns:
        """The models that failed recently, with their cool-downs."""
        from hermes.agent.models.fallback import Cooldowns

        return Cooldowns(self.settings.model.cooldown_seconds)

    def price(self, model: str, used: Used) -> tuple[float | None, Mapping[str, Any]]:
        return self.prices(model, used)

    # ---------------------------------------------------------------- models and tools

    def make_model(self, wish: ModelChoice) -> Model:
        """Open the main model, which answers the person. Callers run this in a thread while the person types.

        The same thread imports the modules for models behind HTTP, so that the first request does not wait
        for the import.
        """
        from hermes.agent.models.choice import OFFLINE, open_main_model
        from hermes.agent.models.openai import preload

        made = self._register(open_main_model(self._read_settings_for(wish), self.cooldowns))
        if made.name != OFFLINE:
            preload()
        return made

    def _register(self, model: Model) -> Model:
        """Register the price of a model and of its fallbacks, and have their calls reported for metrics. Return the
        model."""
        for opened in getattr(model, "models", (model,)):
            if hasattr(opened, "observe"):
                opened.observe = self._observe_call
        return self.prices.know(model)

    def _observe_call(self, report: CallReport) -> None:
        cost = None if report.used is None else self.price(report.model, report.used)[0]
        self.observe_call(report, cost)

    def make_only_model(self, name: str, *, most_retries: int | None = None) -> Model:
        """Open the model `name` without the fallbacks of the settings. `most_retries` replaces the setting
        `model.max_retries`, for callers that repeat requests themselves."""
        from hermes.agent.models.choice import open_model
        from hermes.config.settings import read_settings

        settings = read_settings({"model.default": name, "model.max_retries": most_retries})
        return self._register(open_model(name, settings, settings.model.base_url, settings.model.key_env))

    def list_models(self, wish: ModelChoice) -> ListedModels:
        """Return the names of the models that an endpoint offers. It is the endpoint that would be used if the person
        selected `wish`."""
        from hermes.agent.models import local
        from hermes.agent.models.choice import OFFLINE, choose_endpoint
        from hermes.agent.models.endpoints import list_models
        from hermes.agent.models.model import strip_address
        from hermes.config.settings import read_settings

        if wish.model in (OFFLINE, local.NAME):
            return ListedModels("this machine", (wish.model,))
        settings = read_settings({"model.default": wish.model, "model.base_url": wish.base_url})
        at = choose_endpoint(settings.model.base_url, settings.model.key_env)
        return ListedModels(strip_address(at.base_url), list_models(at.base_url, at.key, patience=LISTING_S))

    def _read_settings_for(self, wish: ModelChoice) -> Settings:
        from hermes.config.settings import read_settings

        self._wish = wish
        settings = read_settings({"model.default": wish.model, "model.base_url": wish.base_url})
        if wish.model is None or wish.context_window is None:
            return settings
        return settings.replace(windows={wish.model: wish.context_window, **settings.windows})

    @cached_property
    def auxiliary(self) -> Model | None:
        """The model that writes titles and summaries; None if there is none."""
        from hermes.agent.models.choice import open_auxiliary_model

        settings = self._read_settings_for(self._wish)
        with suppress(errors.HermesError):
            made = self._register(open_auxiliary_model(settings, self.cooldowns))
            return None if made.name in list_inferior_models(settings) else made
        return None

    @cached_property
    def processes(self) -> BackgroundProcesses:
        """The background processes that tools started."""
        from hermes.agent.tools.background_processes import BackgroundProcesses

        return BackgroundProcesses()

    @cached_property
    def subagents(self) -> Subagents:
        """The subagents that this process runs."""
        from hermes.agent.subagents import Subagents

        return Subagents(self.settings.delegation.max_concurrent)

    @cached_property
    def task_quota(self) -> TaskQuota | None:
        """The limit on subagent tasks per person; None if there is no limit."""
        from hermes.agent.subagents import TaskQuota

        per_hour = self.settings.delegation.tasks_per_hour
        return TaskQuota(per_hour) if per_hour else None

    @cached_property
    def access(self) -> Access:
        """The access of tools to the machine. Creating it also prevents other processes from reading the
        memory of this process."""
        from hermes.agent.approvals.policy import ASK, AUTO
        from hermes.agent.sandbox.child_environment import list_key_names
        from hermes.agent.sandbox.sandbox import make_unreadable
        from hermes.agent.tools.access import Access, AccessSettings
        from hermes.config import config_file

        make_unreadable()
        sandbox, network = self.settings.sandbox, self.settings.sandbox.network
        mode = self.settings.approvals.mode
        must_ask = self._grants is not None or (self._surface_decides and mode == AUTO)
        return Access(
            AccessSettings(
                mode=ASK if must_ask else mode,
                network=not self._is_job if network is None else network,
                readable=sandbox.readable,
                writable=sandbox.writable,
                environment=sandbox.environment,
                withheld=frozenset(list_key_names(config_file.read())),
                key_file=self.settings.store.key_file,
            ),
            self._grants,
        )

    def make_tools(self, incognito: bool) -> Sequence[Tool]:
        from hermes.agent.session_summaries import SessionSummaries
        from hermes.agent.tools import make_standard_tools

        tools = make_standard_tools(
            home=self._home,
            access=self.access,
            processes=self.processes,
            summaries=SessionSummaries(lambda: self.auxiliary, self.price, shows_detail=self._machine),
            delegation=self._make_delegation(),
            journal=self.get_journal(incognito),
            incognito=incognito,
            shared=self._shared,
        )
        if self._machine and not incognito:
            tools += self._make_more_tools()
        withheld = () if self._grants is None else ("memory",)
        return [
            tool
            for tool in tools
            if (self._machine or tool.name in FOR_EVERYBODY) and tool.name not in withheld
        ]

    def get_journal(self, incognito: bool) -> EditJournal:
        from hermes.agent.edit_journal import EditJournal

        return self._journals.setdefault(incognito, EditJournal(incognito=incognito))

    def _make_delegation(self) -> Delegation:
        from hermes.agent.delegation import Delegation

        return Delegation(
            self.subagents,
            self.settings.delegation,
            self.make_subagent_prompt,
            lambda record, working: self._make_compressor(record, working, self.make_subagent_prompt),
            self.stop_processes,
            self.task_quota if self._has_quota else None,
            self._machine,
        )

    async def make_subagent_prompt(self, working: AgentInputs) -> str:
        from hermes.agent.prompt.skill_files import Skills
        from hermes.agent.prompt.system_prompt import build_subagent_prompt

        return await asyncio.to_thread(
            lambda: build_subagent_prompt(
                tools=working.tools,
                cwd=working.cwd,
                model=working.model.name,
                started_at=clock.now(),
                skills=Skills(self._locate_in_home("skills")),
                machine=self._machine,
            )
        )

    async def make_prompt(self, working: AgentInputs) -> str:
        from hermes.agent.prompt.memory_files import Memory
        from hermes.agent.prompt.skill_files import Skills
        from hermes.agent.prompt.system_prompt import build_system_prompt

        return await asyncio.to_thread(
            lambda: build_system_prompt(
                tools=working.tools,
                cwd=working.cwd,
                source=working.source,
                model=working.model.name,
                started_at=clock.now(),
                memory=Memory(self._locate_in_home("memories")) if self._grants is None else None,
                skills=Skills(self._locate_in_home("skills")),
                machine=self._machine,
                about=working.about,
                shared=self._shared,
            )
        )

    # ---------------------------------------------------------------- background work

    def make_compressor(self, record: Record, working: AgentInputs) -> ManualCompressor:
        if working.incognito:  # an incognito conversation has no memory flush
            return self._make_compressor(record, working, self.make_prompt)
        return self._make_compressor(record, working, self.make_prompt, self._get_saver(working).begin)

    def _make_compressor(
        self,
        record: Record,
        working: AgentInputs,
        make_prompt: Callable[[AgentInputs], Awaitable[str]],
        save: Callable[[str, Sequence[dict[str, Any]]], object] = lambda _session_id, _rows: None,
    ) -> ManualCompressor:
        from hermes.agent.context.compression import ContextCompressor
        from hermes.agent.tools.todo import format_items, read_todo

        def todo(session_id: str) -> str | None:
            items = read_todo(working.db, session_id)
            return format_items(items) if items else None

        return ContextCompressor(
            record,
            working.model,
            self.auxiliary,
            price=self.price,
            prompt=lambda: make_prompt(working),
            tools=working.tools,
            settings=self.settings.compression,
            todo=todo,
            save=save,
        )

    async def make_title(self, db: AnyStore, session_id: str) -> str | None:
        from hermes.agent.title_generation import TitleMaker

        if not self.settings.agent.auto_title:
            return None
        auxiliary = self.get_open_auxiliary() or await asyncio.to_thread(lambda: self.auxiliary)
        return await TitleMaker(db, auxiliary, self.price).make(session_id)

    async def save(self, agent: Agent, least: int = LEAST_SAID) -> bool:
        working = AgentInputs(agent.db, agent.model, agent.tools, agent.cwd, "", False)
        return await self._get_saver(working).save(
            agent.record.session_id, await agent.record.context(), least
        )

    def _get_saver(self, working: AgentInputs) -> MemorySaver:
        from hermes.agent.memory_flush import MemorySaver

        if working.model.name not in self._savers:
            tools = [tool for tool in working.tools if tool.name in SAVING]
            enabled = self.settings.agent.save_memory and any(tool.name == "memory" for tool in tools)
            self._savers[working.model.name] = MemorySaver(
                working.db,
                working.model,
                tools,
                price=self.price,
                cwd=working.cwd,
                enabled=enabled,
                shared=self._shared,
            )
        return self._savers[working.model.name]

    # ---------------------------------------------------------------- commands

    def memory(self) -> str:
        from hermes.agent.prompt.memory_files import FILES, Memory

        memory = Memory(self._locate_in_home("memories"))
        return "\n\n".join(text for text in (memory.read(target).text for target in FILES) if text)

    def skills(self) -> list[tuple[str, str]]:
        from hermes.agent.prompt.skill_files import Skills

        return [(skill.name, skill.description) for skill in Skills(self._locate_in_home("skills")).all()]

    def _locate_in_home(self, name: str) -> Path | None:
        return self._home and self._home / name

    def stop_processes(self, db: AnyStore, session_id: str) -> int:
        from hermes.agent.tool import find_conversation_root

        if "processes" not in self.__dict__:
            return 0
        mine = self.processes.list_for(find_conversation_root(db, session_id))
        active = [process for process in mine if not process.running.over]
        for process in active:
            process.running.kill()
        return len(active)

    def list_processes(self) -> list[str]:
        return self.processes.list_running() if "processes" in self.__dict__ else []

    def keep_setting(self, key: str, value: object) -> None:
        from hermes.config import config_file

        config_file.change(key, value)

    async def close(self) -> None:
        for saver in self._savers.values():
            await saver.close()
        if self._is_part:
            return
        if "processes" in self.__dict__:
            await asyncio.to_thread(self.processes.close)
        if "access" in self.__dict__:
            await asyncio.to_thread(self.access.close)
        if "auxiliary" in self.__dict__ and self.auxiliary is not None:
            await self.auxiliary.close()
