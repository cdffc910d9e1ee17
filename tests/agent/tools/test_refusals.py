"""A refusal that comes with a note: the model is told what the person said, or that nobody could be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.agent.approvals.request import UNANSWERABLE, Decision
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.processes import Processes
from hermes.agent.tools.terminal import Terminal
from hermes.agent.tools.write_file import WriteFile
from tests.agent.tools.conftest import Person

NOTES = [(Decision(False, note="not on a Friday"), "not on a Friday"), (UNANSWERABLE, "nobody can be asked")]


@pytest.mark.parametrize(("decision", "note"), NOTES)
async def test_a_command(
    context: ToolContext, person: Person, processes: Processes, decision: Decision, note: str
) -> None:
    (context.cwd / "kept").mkdir()
    person.says = decision
    with pytest.raises(ToolFailed, match=note):
        await Terminal(processes).run({"command": "rm -rf kept"}, context)
    assert (context.cwd / "kept").is_dir()


@pytest.mark.parametrize(("decision", "note"), NOTES)
async def test_a_change_of_a_file(
    context: ToolContext, person: Person, decision: Decision, note: str
) -> None:
    person.says = decision
    path = Path.home() / ".bashrc"
    with pytest.raises(ToolFailed, match=note):
        await WriteFile().run({"path": str(path), "content": "x"}, context)
    assert not path.exists()
