"""One-shot questions for scripts. The answer is returned; notes and tool calls are reported separately."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hermes.agent.answer import Answer, collect_answer
from hermes.agent.approvals.request import DENY, UNANSWERABLE, ApprovalRequest, Decision
from hermes.agent.context.message_size import MessageTooLarge
from hermes.agent.events import (
    ApprovalAsked,
    Discarded,
    Event,
    Note,
    NotStored,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
)
from hermes.agent.subagents import describe_work
from hermes.chat.input.attachments import File, attach_files, has_pictures, require_eyes
from hermes.chat.view.calls import EDITORS, NO_RESULT, READERS, Call, describe_call
from hermes.chat.view.diffs import format_counts
from hermes.chat.view.edits import read_edit
from hermes.conversation.conversation import Conversation
from hermes.db.session_db import SessionDB
from hermes.text import make_printable

TOO_LARGE_HINT = (
    "Save it as a file and ask about the file, shorten it, or use -m with a model with a larger context"
)
REPEATED = 60
"""The maximum width, in terminal cells, of the command in a line that reports its failure."""


async def ask(
    conversation: Conversation[SessionDB],
    question: str,
    report: Callable[[str], None],
    decide: Callable[[ApprovalRequest], Awaitable[Decision | None]] | None = None,
    files: Sequence[File] = (),
) -> Answer:
    """Ask a question with `files` attached, and return the answer.

    `report` receives a line for each attached file, each problem, and each tool call that may change
    something. A file that the question itself mentions (`@file`) is not attached, because the question may
    come from a script.

    `decide` asks the person for an approval, if the conversation supports approvals. If it returns None, the
    turn is stopped.
    """
    calls = CallLines(report)
    message = attach_files(
        question, conversation.cwd, pasted=[question], files=files, advice="Use -a FILE to attach a file"
    )
    if has_pictures(message.content):
        require_eyes((await conversation.prepare()).agent.model)
    for line in message.notes:
        report(line)

    async def show(event: Event) -> None:
        match event:
            case NotStored(role, why, _):
                report(f"not stored ({role}): {why}")
            case Note(text, hint):
                report(f"{text} {hint}".rstrip())
            case Discarded(why, seconds):
                report(f"{why}; trying again in {seconds:.0f}s" if seconds else why)
            case ApprovalAsked(number, request) if decide is not None:
                decision = await decide(request)
                if decision is None:
                    conversation.stop()
                conversation.decide(number, decision or DENY)
            case ToolStarted() | ToolEnded() | SubagentProgress():
                calls.follow(event)
            case _:
                pass

    try:
        answer = await collect_answer(conversation.say(message.content), show)
    except MessageTooLarge as problem:
        raise MessageTooLarge(f"{problem}. {TOO_LARGE_HINT}") from problem
    calls.finish()
    return answer


class CallLines:
    """Reports one line for each tool call that may change something. A command is reported when it starts, an
    edit when it ends.

    A failed command gets a second line. A subagent gets a line when it starts and another when it ends.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._running: list[tuple[str, Call]] = []
        self._subagents: dict[int | None, str] = {}

    def follow(self, event: ToolStarted | ToolEnded | SubagentProgress) -> None:
        match event:
            case ToolStarted(call_id, name, arguments):
                self.start(call_id, Call(name, arguments))
            case ToolEnded(call_id, name, output, failed, _):
                self.end(call_id, name, output, failed)
            case SubagentProgress():
                self.follow_subagent(event)

    def start(self, call_id: str, call: Call) -> None:
        self._running.append((call_id, call))
        if call.name not in (*READERS, *EDITORS):
            self._report(describe_call(call.name, call.arguments))

    def end(self, call_id: str, name: str, output: str, failed: bool) -> None:
        running = next((entry for entry in self._running if entry[0] == call_id), None)
        if running is not None:
            self._running.remove(running)
        call = (running[1] if running else Call(name, {}))._replace(output=output, failed=failed)
        edit = read_edit(call)
        if edit is not None:
            change = f"{edit.action}, {format_counts(edit.added, edit.removed)}"
            self._report(f"{describe_call(name, call.arguments)}: {change}")
        elif not call.succeeded and name not in READERS and UNANSWERABLE.note not in output:
            limit = None if name in EDITORS else REPEATED
            description = describe_call(name, call.arguments, width_limit=limit)
            self._report(f"{description}: {call.exit_state or make_printable(output, width_limit=200)}")

    def follow_subagent(self, progress: SubagentProgress) -> None:
        if progress.state == "queued" or self._subagents.get(progress.number) == progress.state:
            return
        self._subagents[progress.number] = progress.state
        goal = make_printable(progress.goal, width_limit=REPEATED)
        state = f"{progress.state} ({describe_work(progress)})" if progress.is_over else "begins"
        self._report(f"subagent {progress.number} {state}: {goal}")

    def finish(self) -> None:
        """Called at the end of the turn. Report the edits that started and have no result."""
        for _, call in self._running:
            if call.name in EDITORS:
                self._report(f"{describe_call(call.name, call.arguments)}: {NO_RESULT}")


def make_json(conversation: Conversation[SessionDB], answer: Answer) -> dict[str, Any]:
    used = conversation.total
    return {
        "answer": answer.text,
        "session_id": None if conversation.incognito else conversation.session_id,
        "model": used.model or None,
        "usage": {**used.used._asdict(), "cost_usd": used.cost_usd},
    }
