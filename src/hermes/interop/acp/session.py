"""A session of an editor: one conversation with its prompts, permissions, mode and model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from uuid import uuid4

from acp import text_block, tool_content, update_agent_message_text, update_tool_call
from acp.helpers import update_available_commands, update_current_mode
from acp.schema import (
    ConfigOptionUpdate,
    PermissionOption,
    PromptResponse,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    SessionMode,
    SessionModeState,
    ToolCallUpdate,
    Usage,
)

from hermes import clock, errors
from hermes.agent.answer import Answer, collect_answer
from hermes.agent.approvals.policy import ASK, AUTO, OFF
from hermes.agent.approvals.request import ALLOW_ONCE, DENY, Decision
from hermes.agent.events import ApprovalAsked, Event, Stored
from hermes.agent.models.finish_reasons import FILTERED, LENGTH, normalize_reason
from hermes.agent.models.model import strip_address, takes_pictures
from hermes.conversation.background_tasks import BackgroundTasks
from hermes.interop.acp.commands import CommandCall, list_commands, parse_command, run_command
from hermes.interop.acp.prompt_content import Block, PromptRefused, has_only_text, read_prompt
from hermes.interop.acp.session_list import make_title
from hermes.interop.acp.tool_calls import ToolCalls, list_options, read_option
from hermes.interop.acp.updates import TurnUpdates, Update, replay_conversation
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import SessionDB

T = TypeVar("T")
StopReason = Literal["end_turn", "max_tokens", "refusal", "cancelled"]

MODES = {
    ASK: ("Ask", "Ask before a tool changes something"),
    AUTO: ("Auto", "Ask only before a tool leaves the sandbox or the workspace"),
    OFF: ("Off", "No sandbox and no questions; set by approvals.mode in config.yaml"),
}
"""The approval modes, with the name and the description for the editor. `off` is offered only if it is configured."""
STOP_REASONS: dict[str, StopReason] = {LENGTH: "max_tokens", FILTERED: "refusal"}
ENDS_WITHIN_S = 5.0
"""How many seconds a running prompt has to stop before its session is closed."""
CHAT_COMPLETIONS = "chat_completions"


class SessionBusy(errors.HermesError):
    """The editor's request is not possible while a prompt is running in the session."""


class TurnFailed(errors.HermesError):
    """The model did not answer. The prompt is stored."""


class UnknownOption(errors.HermesError):
    """The editor has set a mode, an option or a value that does not exist."""


class EditorClient(Protocol):
    """The editor at the other end of the connection."""

    async def send_update(self, session_id: str, update: Update) -> None: ...

    async def ask_permission(
        self, session_id: str, call: ToolCallUpdate, options: Sequence[PermissionOption]
    ) -> str | None:
        """Ask the person for permission for a tool call. Return the id of the chosen option; None if the person chose
        none or cannot be asked."""


class EditorSession:
    def __init__(
        self,
        session_id: str,
        conversation: Conversation[SessionDB],
        client: EditorClient,
        *,
        mode: str,
        models: Sequence[str],
        model: str | None,
        is_own: bool = True,
    ) -> None:
        """Create the session. `session_id` is the id that the editor uses. `models` are the models that the person can
        choose, and `model` is the one that answers until then. `is_own` says whether the session began in an editor."""
        self.id, self.conversation, self.mode = session_id, conversation, mode
        self.is_lost = False
        """Whether another process has taken over the conversation."""
        self._client, self._models, self._model, self._is_own = client, models, model, is_own
        self._calls = ToolCalls(conversation.cwd)
        self._background = BackgroundTasks()
        self._prompting: asyncio.Task[Any] | None = None
        self._cancelled = asyncio.Event()
        self._title: str | None = None
        self._questions = 0

    @property
    def is_busy(self) -> bool:
        return self._prompting is not None

    # ---------------------------------------------------------------- prompts

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """Answer a prompt of the editor, or run the slash command in it. Session updates are sent to the editor
        meanwhile."""
        self.check_idle()
        content = read_prompt(blocks)
        call = parse_command(content) if has_only_text(blocks) else None
        self._prompting, self._cancelled = asyncio.current_task(), asyncio.Event()
        try:
            if call is None:
                return await self._answer(content)
            if isinstance(call, str):
                await self._send(update_agent_message_text(call))
                return PromptResponse(stop_reason="end_turn")
            return await self._run_command(call)
        finally:
            self._prompting = None
            self.conversation.expect(False)
            self._background.start(self._report_changes())

    def cancel(self) -> None:
        """Stop the running prompt. The messages that exist by then are stored."""
        if self.is_busy:
            self._cancelled.set()
            self.conversation.stop()

    def check_idle(self) -> None:
        if self.is_busy:
            raise SessionBusy("a prompt is running in this session; cancel it, or wait for its end")

    async def _run_command(self, call: CommandCall) -> PromptResponse:
        result = await self._run_until_cancelled(run_command(self.conversation, call, self._ask))
        if result is None:
            return PromptResponse(stop_reason="cancelled")
        if result.ask_again is not None:
            again = result.ask_again
            return await self._answer(None if again.is_stored else again.content)
        await self._send(update_agent_message_text(result.text))
        return PromptResponse(stop_reason="end_turn")

    async def _answer(self, content: Any) -> PromptResponse:
        if self._cancelled.is_set():
            return PromptResponse(stop_reason="cancelled")
        self.conversation.expect(True)  # from now on, the turn can be stopped
        if isinstance(content, list):
            model = (await self.conversation.prepare()).agent.model
            if not takes_pictures(model):
                raise PromptRefused(
                    f"{make_printable(model.name)} takes no pictures; the prompt was not sent. Choose another model"
                )
        answer = Answer()
        updates = TurnUpdates(self.conversation, self._calls, answer)

        async def show(event: Event) -> None:
            for update in await updates.translate(event):
                await self._send(update)
            if isinstance(event, ApprovalAsked):
                await self._decide(event)
            elif isinstance(event, Stored) and event.role == "user":
                await self._keep_config()

        await collect_answer(self.conversation.say(content), show, answer)
        self.is_lost = answer.lost_lease is not None
        is_cancelled = answer.outcome == "stopped" or self._cancelled.is_set()
        if answer.failure is not None and (self.is_lost or not is_cancelled):
            raise answer.lost_lease or TurnFailed(answer.failure.why)
        reason: StopReason = STOP_REASONS.get(normalize_reason(answer.reason) or "", "end_turn")
        return PromptResponse(stop_reason="cancelled" if is_cancelled else reason, usage=_sum_usage(answer))

    async def _keep_config(self) -> None:
        """If the session began in an editor, store its working directory and the endpoint of its model in the session
        row."""
        models = self.conversation.models
        if not self._is_own or models is None or models.model is None:
            return
        model = getattr(models.model, "models", (models.model,))[0]
        config = {
            "cwd": str(self.conversation.cwd),
            "provider": model.provider,
            "base_url": None if model.base_url is None else strip_address(model.base_url),
            "api_mode": None if model.base_url is None else CHAT_COMPLETIONS,
        }
        known = {name: value for name, value in config.items() if value is not None}
        await self.conversation.record.keep_model_config(known)

    async def _send(self, update: Update) -> None:
        try:
            await self._client.send_update(self.id, update)
        except ConnectionError:  # the editor is gone
            self.cancel()

    async def _run_until_cancelled(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`; None if the prompt was cancelled first."""
        working, cancelling = asyncio.create_task(work), asyncio.create_task(self._cancelled.wait())
        try:
            await asyncio.wait([working, cancelling], return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else None
        finally:
            for task in (working, cancelling):
                task.cancel()
            await asyncio.gather(working, cancelling, return_exceptions=True)

    # ---------------------------------------------------------------- permissions

    async def _decide(self, event: ApprovalAsked) -> None:
        """Answer an approval request. In the mode `auto`, allow an action for which a lasting permission could be
        granted. Ask the person about any other action."""
        request, call = event.request, self._calls.find_waiting(event.call_id)
        if self.mode == AUTO and request.scopes:
            self.conversation.decide(event.number, ALLOW_ONCE)
            return
        described = self._calls.describe_permission(call, request, event.number)
        chosen = await self._run_until_cancelled(
            self._client.ask_permission(self.id, described, list_options(request))
        )
        decision: Decision = DENY if chosen is None else read_option(chosen, request)
        if (
            call is None
        ):  # the question is not part of a call that the editor shows, so it ends with the answer
            status: Literal["completed", "failed"] = "completed" if decision.allowed else "failed"
            await self._send(update_tool_call(described.tool_call_id, status=status))
        elif decision.allowed:
            await self._send(update_tool_call(described.tool_call_id, status="in_progress"))
        self.conversation.decide(event.number, decision)

    async def _ask(self, question: str, details: str) -> bool:
        """Show the person a question that a slash command asks, in the form of a permission request. Return whether the
        person agrees."""
        self._questions += 1
        call = ToolCallUpdate(
            tool_call_id=f"question-{self._questions}",
            title=question,
            kind="edit",
            status="pending",
            content=[tool_content(text_block(details))],
        )
        options = [
            PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        return await self._client.ask_permission(self.id, call, options) == "yes"

    # ---------------------------------------------------------------- state

    async def replay(self) -> None:
        """Send the whole stored conversation to the editor."""
        conversation = self.conversation
        if not conversation.exists:
            return
        self._calls = ToolCalls(conversation.cwd)
        make_journal = conversation.parts.edits
        journal = None if make_journal is None else make_journal(False)
        async for update in replay_conversation(
            conversation.store, conversation.session_id, conversation.cwd, self._calls, journal
        ):
            await self._send(update)

    def announce(self, notice: str | None = None) -> None:
        """Send the available slash commands, a notice and the title of the session to the editor. They are sent after
        the response to the request that opened the session."""
        self._background.start(self._announce(notice))

    async def _announce(self, notice: str | None) -> None:
        await self._send(update_available_commands(list_commands()))
        if notice is not None:
            await self._send(update_agent_message_text(f"{notice}\n\n"))
        await self._report_title()

    async def _report_changes(self) -> None:
        """After a prompt, report a changed model and a new title to the editor. Wait for the title, which is generated
        after the answer."""
        if self.find_model() != self._model:
            self._model = self.find_model()
            await self._send(self._make_option_update())
        await self.conversation.settle()
        await self._report_title()

    async def _report_title(self) -> None:
        conversation, row = self.conversation, None
        if conversation.exists:
            with suppress(errors.StoreError):
                row = await asyncio.to_thread(conversation.store.get_conversation, conversation.session_id)
        if row is None:
            return
        title = make_title(row["title"], row["preview"], str(conversation.cwd))
        if title != self._title:
            self._title = title
            updated = clock.format_iso_utc(clock.now())
            await self._send(
                SessionInfoUpdate(session_update="session_info_update", title=title, updated_at=updated)
            )

    def list_modes(self) -> SessionModeState:
        names = (OFF,) if self.mode == OFF else (ASK, AUTO)
        modes = [SessionMode(id=name, name=MODES[name][0], description=MODES[name][1]) for name in names]
        return SessionModeState(current_mode_id=self.mode, available_modes=modes)

    def find_model(self) -> str | None:
        """Return the name of the model that answers; None if no model is configured."""
        models = self.conversation.models
        loaded = None if models is None else models.model
        return self._model if loaded is None else loaded.name

    def list_config_options(self) -> list[SessionConfigOptionSelect]:
        """Return the approval mode and the model as options that the editor can show. Editors that support options do
        not use `list_modes`."""
        modes = self.list_modes()
        choices = [
            SessionConfigSelectOption(value=mode.id, name=mode.name, description=mode.description)
            for mode in modes.available_modes
        ]
        options = [
            SessionConfigOptionSelect(
                id="mode",
                name="Approvals",
                description="When the agent asks for permission",
                category="mode",
                type="select",
                current_value=modes.current_mode_id,
                options=choices,
            )
        ]
        model = self.find_model()
        if model is not None:
            names = dict.fromkeys((*self._models, model))
            options.append(
                SessionConfigOptionSelect(
                    id="model",
                    name="Model",
                    category="model",
                    type="select",
                    current_value=model,
                    options=[SessionConfigSelectOption(value=name, name=name) for name in names],
                )
            )
        return options

    def _make_option_update(self) -> ConfigOptionUpdate:
        return ConfigOptionUpdate(
            session_update="config_option_update", config_options=list(self.list_config_options())
        )

    async def set_mode(self, mode: str) -> None:
        """Change the approval mode, and send the changed options to the editor."""
        self._choose_mode(mode)
        await self._send(self._make_option_update())

    async def set_option(self, option: str, value: object) -> None:
        """Set the approval mode or the model of the session. `option` is `mode` or `model`."""
        known = next((known for known in self.list_config_options() if known.id == option), None)
        if known is None:
            raise UnknownOption(f"there is no option {option!r:.60}; there are: mode, model")
        values = [choice.value for choice in known.options if isinstance(choice, SessionConfigSelectOption)]
        if not isinstance(value, str) or value not in values:
            raise UnknownOption(f"{option} cannot be {value!r:.60}; it can be: {', '.join(values)}")
        if option == "mode":
            self._choose_mode(value)
            await self._send(update_current_mode(value))
        elif value != self.find_model():
            self.check_idle()  # a turn keeps its model
            await self.conversation.choose_model(value)
            self._model = value

    def _choose_mode(self, mode: str) -> None:
        names = [known.id for known in self.list_modes().available_modes]
        if mode not in names:
            raise UnknownOption(f"there is no mode {mode!r:.60}; there are: {', '.join(names)}")
        self.mode = mode

    async def close(self) -> None:
        """Stop the running prompt, end background processes and release the lease."""
        prompting = self._prompting
        self.cancel()
        if prompting is not None and prompting is not asyncio.current_task():
            await asyncio.wait([prompting], timeout=ENDS_WITHIN_S)
        await self._background.cancel(0)
        with suppress(errors.StoreError):
            await self.conversation.stop_processes()
        await self.conversation.close()


def _sum_usage(answer: Answer) -> Usage | None:
    tokens = answer.tokens
    if tokens is None:
        return None
    prompt, cached, output, reasoning = tokens
    return Usage(
        total_tokens=prompt + output,
        input_tokens=prompt,
        output_tokens=output,
        thought_tokens=reasoning,
        cached_read_tokens=cached,
    )


def make_session_id() -> str:
    return str(uuid4())
