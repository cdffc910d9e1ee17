"""Tools that an agent can call, one module per tool.

This folder owns the arguments, limits and outputs of each tool. `factory` selects the tools when it builds an
agent. The folder imports approvals, the sandbox and the files of the prompt. It imports no turn and no model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.agent.delegation import Delegation
    from hermes.agent.edit_journal import EditJournal
    from hermes.agent.session_summaries import SessionSummaries
    from hermes.agent.tool import Tool
    from hermes.agent.tools.access import Access
    from hermes.agent.tools.background_processes import BackgroundProcesses


def make_standard_tools(
    *,
    home: Path | None = None,
    access: Access | None = None,
    processes: BackgroundProcesses | None = None,
    summaries: SessionSummaries | None = None,
    delegation: Delegation | None = None,
    journal: EditJournal | None = None,
    incognito: bool = False,
    shared: bool = False,
) -> list[Tool]:
    """Return the standard tools.

    `home` is the folder for memories and skills, if it differs from the program's home. `access` defines the
    access to the machine. `processes` is the registry of background processes. `summaries` provides a model
    for `session_search`. `delegation` runs subagents; without it there is no `delegate_task`. `journal` keeps
    the old contents of edited files.

    With `incognito`, tools that store data are left out. `shared` is for a room that several people share:
    memory and skills belong to the room and name their authors.
    """
    from hermes.agent.prompt.memory_files import Memory
    from hermes.agent.prompt.skill_files import Skills
    from hermes.agent.tools.access import Access
    from hermes.agent.tools.background_processes import BackgroundProcesses
    from hermes.agent.tools.memory_tool import MemoryTool
    from hermes.agent.tools.patch import Patch
    from hermes.agent.tools.process import Process
    from hermes.agent.tools.read_file import ReadFile
    from hermes.agent.tools.search_files import SearchFiles
    from hermes.agent.tools.session_search import SessionSearch
    from hermes.agent.tools.skill_tools import SkillManage, SkillsList, SkillView
    from hermes.agent.tools.terminal import Terminal
    from hermes.agent.tools.todo import Todo
    from hermes.agent.tools.write_file import WriteFile

    known = BackgroundProcesses() if processes is None else processes
    reach = Access() if access is None else access
    skills = Skills(home and home / "skills")
    tools: list[Tool] = [
        Terminal(known, reach),
        Process(known),
        ReadFile(reach),
        WriteFile(reach, journal),
        Patch(reach, journal),
        SearchFiles(reach),
        SkillsList(skills),
        SkillView(skills),
        SessionSearch(summaries),
        Todo(),
    ]
    if delegation is not None:
        from hermes.agent.tools.delegate_task import DelegateTask

        tools.append(DelegateTask(delegation))
    if not incognito:
        tools += [
            MemoryTool(Memory(home and home / "memories"), shared=shared),
            SkillManage(skills, shared=shared),
        ]
    return tools
