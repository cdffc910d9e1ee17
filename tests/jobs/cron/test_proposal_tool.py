"""`schedule_job`: the agent proposes, the owner decides."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.approvals.request import ALLOW_ONCE, DENY, ApprovalRequest, Decision
from hermes.agent.events import ApprovalAsked, Event
from hermes.agent.factory import StandardFactory
from hermes.conversation.local_conversation import open_local_conversation
from hermes.gateway.scheduled_jobs import make_job_tools
from hermes.jobs.cron.job_files import JobFiles
from hermes_state import SessionDB
from tests.agent.task_server import TaskServer

PROPOSAL = {
    "schedule": "weekdays at 9",
    "prompt": "summarise the mail",
    "name": "mail",
    "allow": ["git pull"],
}


def propose(
    db: SessionDB, folder: Path, decision: Decision | None, **changes: Any
) -> tuple[list[ApprovalRequest], str]:
    """Let the model propose a job. Return the requests that the owner saw, and the last text of the model."""

    async def work() -> tuple[list[ApprovalRequest], str]:
        parts = StandardFactory(make_more_tools=make_job_tools).parts()
        conversation = open_local_conversation(db, parts, can_ask=decision is not None, cwd=folder)
        seen: list[ApprovalRequest] = []
        events: list[Event] = []
        async for event in conversation.say(f"use schedule_job {json.dumps({**PROPOSAL, **changes})}"):
            events.append(event)
            if isinstance(event, ApprovalAsked):
                seen.append(event.request)
                assert decision is not None
                conversation.decide(event.number, decision)
        await conversation.close()
        return seen, str(db.get_messages(conversation.session_id)[-1]["content"])

    return asyncio.run(work())


@pytest.mark.usefixtures("server")
def test_the_owner_sees_the_whole_job_and_it_exists_after_consent(db: SessionDB, workspace: Path) -> None:
    (request,), answer = propose(db, workspace, ALLOW_ONCE)
    for part in ("0 9 * * 1-5", "next times: ", "summarise the mail", "git pull", str(workspace)):
        assert part in request.subject
    assert request.scopes == ()
    job = JobFiles().find("mail")
    assert (job.created_by, job.allow, job.workspace) == ("agent", ("git pull",), str(workspace))
    assert "The job 'mail' exists" in answer


@pytest.mark.usefixtures("server")
def test_without_consent_there_is_no_job(db: SessionDB, workspace: Path) -> None:
    _, answer = propose(db, workspace, DENY)
    assert "did not agree" in answer
    _, answer = propose(db, workspace, None)
    assert "did not agree" in answer
    assert JobFiles().read_all().jobs == {}


@pytest.mark.usefixtures("server")
def test_a_job_that_cannot_exist_is_not_proposed(db: SessionDB, workspace: Path) -> None:
    for changes, problem in (
        ({"schedule": "soon"}, "not understood"),
        ({"deliver": "telegram"}, "telegram is not set up"),
        ({"deliver": "file:/etc/passwd"}, "deliver: a platform, file or none"),
    ):
        seen, answer = propose(db, workspace, ALLOW_ONCE, **changes)
        assert seen == []
        assert problem in answer


def test_only_agents_of_owners_have_the_tool(server: TaskServer) -> None:
    def list_tools(**given: Any) -> set[str]:
        factory = StandardFactory(make_more_tools=make_job_tools)
        person = factory.for_person(None, **given)
        return {tool.name for tool in person.make_tools(False)}

    assert "schedule_job" in list_tools(machine=True)
    assert "schedule_job" not in list_tools(machine=False)
    assert "schedule_job" not in {
        tool.name for tool in StandardFactory(make_more_tools=make_job_tools).make_tools(True)
    }
