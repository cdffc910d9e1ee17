"""`skills_list`: which skills there are, and what each is for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hermes.agent.prompt.skill_files import Skills
from hermes.agent.tool import ToolContext
from hermes.agent.tools.argument_check import checked, objects
from hermes.recall.tool.prompt_safety import fenced


class SkillsList:
    name = "skills_list"
    description = "List the skills: how-tos that were written down before, with what each is for."
    parameters: Mapping[str, Any] = objects([])

    def __init__(self, skills: Skills) -> None:
        self._skills = skills

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        checked(self.parameters, arguments)
        known = await asyncio.to_thread(self._skills.all)
        return (
            fenced("\n".join(skill.line for skill in known), "skills") if known else "there are no skills yet"
        )
