"""The tool `schedule_job`: the agent proposes a scheduled job, and the owner decides.

The owner is asked every time, whatever `approvals.mode` says, because a job acts later and without a person. The
request shows the whole job. Agents of other people and agents of jobs do not have this tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes import audit_log, clock, errors
from hermes.agent.approvals.request import ApprovalRequest
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.jobs.cron.job import NOWHERE, BadJob, Job
from hermes.jobs.cron.job_files import JobFiles
from hermes.jobs.cron.new_job import list_next_times, make_job

CheckDestination = Callable[[str], None]
"""Raises `HermesError` if results cannot be delivered to this destination."""


class ScheduleJob:
    name = "schedule_job"
    description = (
        "Propose a scheduled job: a prompt that you will run later or repeatedly, without the person. The person is"
        " asked and sees the whole job; it exists only if they agree. Times are in the person's time zone."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "schedule": {
                "type": "string",
                "description": "five cron fields, or words: @daily, every 2h, weekdays at 9, tomorrow at 9",
            },
            "prompt": {
                "type": "string",
                "description": "what to do at that time, complete in itself: the run does not see this conversation",
            },
            "name": {"type": "string", "description": "a short name"},
            "deliver": {
                "type": "string",
                "description": "where the result goes: a platform such as telegram, file, or none (the default)",
            },
            "session": {
                "type": "string",
                "enum": ["new", "job"],
                "description": "new: each run starts afresh; job: each run knows the earlier ones",
            },
            "allow": {
                "type": "array",
                "items": {"type": "string"},
                "description": "commands that the runs may use without approval, such as `git pull`",
            },
        },
        "required": ["schedule", "prompt"],
        "additionalProperties": False,
    }

    def __init__(self, check_destination: CheckDestination, files: JobFiles | None = None) -> None:
        self._check_destination, self._files = check_destination, files

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> str:
        try:
            job = await asyncio.to_thread(self._make_job, arguments, context.cwd)
        except errors.HermesError as problem:
            raise ToolFailed(str(problem)) from None
        request = ApprovalRequest(
            f"schedule the job “{job.name}”\n{describe_proposal(job)}", "will act later, without you"
        )
        decision = await context.approve(request)
        if not decision.allowed:
            why = f": {decision.note}" if decision.note else ""
            raise ToolFailed(
                f"the person did not agree to this job{why}. Do not propose it again unless asked."
            )
        try:
            job = await asyncio.to_thread((self._files or JobFiles()).add, _renew(job))
        except (errors.HermesError, OSError) as problem:
            raise ToolFailed(f"the job was not stored: {problem}") from None
        audit_log.record("job added", job=job.id, by="agent, approved by the owner")
        times = ", ".join(list_next_times(job)) or "never"
        return (
            f"The job {job.id!r} exists. Its next times: {times}. The person manages it with `hermes cron`."
        )

    def _make_job(self, arguments: dict[str, Any], cwd: Path) -> Job:
        deliver = arguments.get("deliver") or NOWHERE
        if deliver.startswith("file:"):
            raise BadJob("deliver: a platform, file or none")
        self._check_destination(deliver)
        return make_job(
            arguments["schedule"],
            arguments["prompt"],
            name=arguments.get("name"),
            deliver=deliver,
            session=arguments.get("session") or "new",
            allow=tuple(arguments.get("allow") or ()),
            workspace=str(cwd),
            created_by="agent",
        )


def describe_proposal(job: Job) -> str:
    """Return the lines of the approval request that describe a proposed job to the owner."""
    # The prompt comes last and is indented, so that it cannot contain lines that look like the others.
    lines = [
        f"schedule: {job.schedule} ({job.timezone})",
        f"next times: {', '.join(list_next_times(job)) or 'never'}",
        f"result: {job.deliver}; session: {job.session}; folder: {job.workspace}",
        "may run without asking:" if job.allow else "may run without asking: only commands that read",
        *(f"  {command!r}" for command in job.allow),
        "prompt:",
        *(f"  {line}" for line in job.prompt.splitlines()),
    ]
    return "\n".join(lines)


def _renew(job: Job) -> Job:
    """Return the proposed job, changed so that due times before now never run. Time may have passed until the owner
    approved it."""
    return msgspec.structs.replace(job, since=max(job.since, float(int(clock.now()))))
