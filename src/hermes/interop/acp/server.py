"""The requests of an editor: open, list, close, delete and fork sessions, and answer prompts in them.

Every error becomes a JSON-RPC error with a message in one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from acp.core import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    AuthenticateRequest,
    AuthenticateResponse,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ForkSessionRequest,
    ForkSessionResponse,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionRequest,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    RequestPermissionRequest,
    RequestPermissionResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionListCapabilities,
    SessionNotification,
    SessionResumeCapabilities,
    SetSessionConfigOptionBooleanRequest,
    SetSessionConfigOptionResponse,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    ToolCallUpdate,
)
from acp.utils import notify_model, request_model
from pydantic import BaseModel, ValidationError

from hermes import __version__, errors
from hermes.agent.components import ModelChoice
from hermes.config.config_file import hide_secrets
from hermes.config.redaction import redact_text
from hermes.conversation.agents import AgentScope
from hermes.conversation.conversation import Conversation
from hermes.conversation.local_conversation import LocalAgentProvider
from hermes.conversation.model_choice import ModelSelector
from hermes.conversation.surface import Surface
from hermes.interop.acp.prompt_content import PromptRefused
from hermes.interop.acp.session import EditorSession, SessionBusy, UnknownOption, make_session_id
from hermes.interop.acp.session_list import ACP, SOURCES, find_directory, list_sessions
from hermes.interop.acp.updates import Update
from hermes.logs import get_logger
from hermes.store.chats.leases import Lease
from hermes.store.processes import identify_process
from hermes.text import make_printable

if TYPE_CHECKING:
    from hermes.agent.components import AgentComponents
    from hermes.config.settings_schema import Settings
    from hermes.db.session_db import SessionDB

_log = get_logger(__name__)


class WrongDirectory(errors.HermesError):
    """The editor's working directory cannot be used, or the session belongs to another directory."""


SURFACE = "editor"
END_REASON = "acp_close"
INVALID_REQUEST, NOT_FOUND, INVALID_PARAMS, INTERNAL = -32600, -32601, -32602, -32603
UNKNOWN_SESSION, IN_USE = -32002, -32001
"""Error codes. The first four are those of JSON-RPC. `UNKNOWN_SESSION` is the protocol's code for a missing resource.
`IN_USE` is a code of Hermes: another process works in the conversation."""
CODES: tuple[tuple[type[errors.HermesError], int], ...] = (
    (errors.UnknownSession, UNKNOWN_SESSION),
    (errors.LeaseHeld, IN_USE),
    (errors.LeaseLost, IN_USE),
    (SessionBusy, INVALID_REQUEST),
    (errors.InvalidArgument, INVALID_PARAMS),
    (PromptRefused, INVALID_PARAMS),
    (UnknownOption, INVALID_PARAMS),
    (WrongDirectory, INVALID_PARAMS),
)
NO_MCP = "MCP servers of the editor are not supported yet; these are not available: {}."
OpenRequest = NewSessionRequest | LoadSessionRequest | ResumeSessionRequest | ForkSessionRequest


class AgentSettings(NamedTuple):
    """The settings that apply to all sessions of an editor."""

    parts: AgentComponents
    mode: str
    """The approval mode of new sessions."""
    chosen_model: str | None
    """The model from the command line, which answers in all sessions, or None."""
    model: str | None
    """The model of new sessions; None if none is configured."""
    models: Sequence[str]
    """The models that the person can choose."""


def read_agent_settings(parts: AgentComponents, settings: Settings, model: str | None) -> AgentSettings:
    """Return the settings for editors. `model` is the model from the command line, or None. A fallback with another
    endpoint is not offered, because a chosen model is requested from the endpoint of the default model."""
    from hermes.agent.models.choice import list_fallbacks

    default = model or settings.model.default
    others = [
        fallback.model
        for fallback in list_fallbacks(settings)
        if fallback.base_url in (None, settings.model.base_url)
    ]
    names = filter(None, (default, settings.model.default, *others))
    return AgentSettings(parts, settings.approvals.mode, model, default, list(dict.fromkeys(names)))


class AcpServer:
    def __init__(self, store: SessionDB, settings: AgentSettings) -> None:
        self._store, self._settings = store, settings
        self._connection: Connection | None = None
        self._sessions: dict[str, EditorSession] = {}
        self._opening = asyncio.Lock()
        """Held while a session is opened or closed, so that a conversation is open at most once."""

    def connect(self, connection: Connection) -> None:
        self._connection = connection

    async def handle(self, method: Any, params: Any, is_notification: bool) -> BaseModel | None:
        """Answer a request or a notification. If a request fails, raise `RequestError` with a message in one line. If a
        notification fails, only log it."""
        try:
            route = ROUTES.get(method) if isinstance(method, str) else None
            if route is None:
                raise RequestError(NOT_FOUND, f"there is no method {method!r:.60}")
            request = _validate(route.models, params)
            return await route.run(self, request)
        except RequestError as problem:
            refusal = problem
        except ValidationError as problem:
            refusal = RequestError(INVALID_PARAMS, _describe_invalid(method, problem))
        except errors.HermesError as problem:
            refusal = RequestError(_find_code(problem), _to_one_line(_describe(problem)))
        except Exception as problem:  # noqa: BLE001  the connection must survive any error
            _log.exception("%s failed", method)
            text = f"unexpected {type(problem).__name__}: {problem} (the log on stderr has more)"
            refusal = RequestError(INTERNAL, _to_one_line(text))
        if is_notification:
            _log.info("the notification %.60s was ignored: %s", method, refusal)
            return None
        raise refusal

    async def close(self) -> None:
        """Stop all prompts and release all conversations."""
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)

    # ---------------------------------------------------------------- the editor

    async def send_update(self, session_id: str, update: Update) -> None:
        notification = SessionNotification(session_id=session_id, update=update)
        await notify_model(self._get_connection(), CLIENT_METHODS["session_update"], notification)

    async def ask_permission(
        self, session_id: str, call: ToolCallUpdate, options: Sequence[PermissionOption]
    ) -> str | None:
        request = RequestPermissionRequest(session_id=session_id, tool_call=call, options=list(options))
        try:
            answer = await request_model(
                self._get_connection(),
                CLIENT_METHODS["session_request_permission"],
                request,
                RequestPermissionResponse,
            )
        except (RequestError, ValidationError, ConnectionError) as problem:
            _log.warning("the editor did not answer a permission request: %s", _to_one_line(str(problem)))
            return None
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else None

    def _get_connection(self) -> Connection:
        if self._connection is None:
            raise ConnectionError("there is no connection")
        return self._connection

    # ---------------------------------------------------------------- requests

    async def initialize(self, _request: InitializeRequest) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=False, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            agent_info=Implementation(name="hermes", title="Hermes", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, _request: AuthenticateRequest) -> AuthenticateResponse:
        return AuthenticateResponse()

    async def new_session(self, request: NewSessionRequest) -> NewSessionResponse:
        conversation = self._make_conversation(_check_directory(request.cwd))
        session = self._make_session(conversation.session_id, conversation, self._settings.model)
        assert conversation.models is not None
        loading = conversation.models.start_loading()  # the first prompt does not wait for it
        loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return NewSessionResponse(session_id=session.id, **self._announce(session, request))

    async def load_session(self, request: LoadSessionRequest) -> LoadSessionResponse:
        session = await self._open(request.session_id, request.cwd)
        await session.replay()
        return LoadSessionResponse(**self._announce(session, request))

    async def resume_session(self, request: ResumeSessionRequest) -> ResumeSessionResponse:
        session = await self._open(request.session_id, request.cwd)
        return ResumeSessionResponse(**self._announce(session, request))

    async def fork_session(self, request: ForkSessionRequest) -> ForkSessionResponse:
        """Create a branch of a session and open it for the editor. The original session is not changed, so another
        process may be using it."""
        directory = _check_directory(request.cwd)
        known = self._sessions.get(request.session_id)
        if known is not None and not known.conversation.exists:
            raise errors.make_error(
                errors.InvalidArgument, "the session has no messages yet, so it cannot be forked"
            )
        parent = request.session_id if known is None else known.conversation.session_id
        tip = await asyncio.to_thread(self._find_live_session, parent, directory)
        child = await asyncio.to_thread(
            lambda: self._store.branch(tip, end_parent=False, session_id=make_session_id())
        )
        session = await self._open(child, request.cwd)
        return ForkSessionResponse(session_id=session.id, **self._announce(session, request))

    async def list_sessions(self, request: ListSessionsRequest) -> ListSessionsResponse:
        if request.cwd is not None and not Path(request.cwd).is_absolute():
            raise WrongDirectory(f"cwd must be an absolute path, not {request.cwd!r:.200}")
        return await asyncio.to_thread(list_sessions, self._store, request.cwd, request.cursor)

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        await self._close(request.session_id)
        return CloseSessionResponse()

    async def delete_session(self, request: DeleteSessionRequest) -> DeleteSessionResponse:
        """Move the conversation of the session to the trash. If the session does not exist, do nothing."""
        session = self._sessions.get(request.session_id)
        session_id = request.session_id if session is None else session.conversation.session_id
        if session is None:
            row = await asyncio.to_thread(self._store.get_session, session_id)
            if row is not None and row["source"] not in SOURCES:
                raise errors.make_error(errors.UnknownSession, f"Session not found: {session_id:.80}")
            holder = await asyncio.to_thread(self._store.leases.find_holder, session_id)
            if holder is not None and holder.holder != (*identify_process(), SURFACE):
                raise errors.LeaseHeld(f"session {session_id} is in use", holder)
            await self._check_closed(session_id)
        await self._close(request.session_id)
        await asyncio.to_thread(self._store.trash_session, session_id)
        return DeleteSessionResponse()

    async def prompt(self, request: PromptRequest) -> PromptResponse:
        session = self._get_open(request.session_id)
        try:
            return await session.prompt(request.prompt)
        finally:
            if session.is_lost:  # the editor can load it again when the other process has left it
                await self._close(request.session_id)

    async def cancel(self, request: CancelNotification) -> None:
        session = self._sessions.get(request.session_id)
        if session is not None:
            session.cancel()

    async def set_mode(self, request: SetSessionModeRequest) -> SetSessionModeResponse:
        await self._get_open(request.session_id).set_mode(request.mode_id)
        return SetSessionModeResponse()

    async def set_option(
        self, request: SetSessionConfigOptionSelectRequest | SetSessionConfigOptionBooleanRequest
    ) -> SetSessionConfigOptionResponse:
        session = self._get_open(request.session_id)
        await session.set_option(request.config_id, request.value)
        return SetSessionConfigOptionResponse(config_options=list(session.list_config_options()))

    # ---------------------------------------------------------------- sessions

    def _make_conversation(self, directory: Path) -> Conversation[SessionDB]:
        parts = self._settings.parts._replace(close=None)  # all sessions share them; the program closes them
        models = ModelSelector(parts, ModelChoice(self._settings.chosen_model))
        surface = Surface(name=SURFACE, end_reason=END_REASON, keeps_partial=True, make_id=make_session_id)
        scope = AgentScope("", ACP, True, can_ask=True, cwd=directory, is_owner=True)
        return Conversation(self._store, LocalAgentProvider(parts, models), scope, surface, models)

    def _make_session(
        self, session_id: str, conversation: Conversation[SessionDB], model: str | None, is_own: bool = True
    ) -> EditorSession:
        settings = self._settings
        session = self._sessions[session_id] = EditorSession(
            session_id,
            conversation,
            self,
            mode=settings.mode,
            models=settings.models,
            model=model,
            is_own=is_own,
        )
        return session

    def _get_open(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise errors.make_error(
                errors.UnknownSession, f"session {session_id!r:.80} is not open; load or resume it first"
            )
        return session

    async def _open(self, session_id: str, cwd: str) -> EditorSession:
        """Open a stored session for the editor and take its lease. If this server has already opened the session,
        return it as it is."""
        directory = _check_directory(cwd)
        async with self._opening:
            known = self._sessions.get(session_id)
            if known is not None:
                known.check_idle()
                return known
            tip = await asyncio.to_thread(self._find_live_session, session_id, directory)
            await self._check_closed(tip)
            conversation = self._make_conversation(directory)
            try:
                await conversation.switch_to(tip, asked_cwd=directory, reopen=False)
                row = await asyncio.to_thread(self._store.get_session, tip) or {}
            except BaseException:
                await conversation.close()
                raise
            model = self._settings.chosen_model or row.get("model") or self._settings.model
            return self._make_session(session_id, conversation, model, row.get("source") == ACP)

    async def _check_closed(self, tip: str) -> None:
        """Raise an error if this server has the conversation of the session `tip` open under another session id."""
        root = await asyncio.to_thread(self._store.get_conversation_root, tip)
        if root is None:
            return
        for session in self._sessions.values():
            open_id = session.conversation.session_id
            if root == await asyncio.to_thread(self._store.get_conversation_root, open_id):
                raise SessionBusy(f"the conversation is already open here, as session {session.id}")

    def _find_live_session(self, session_id: str, directory: Path) -> str:
        """Return the id of the live session of the conversation of `session_id`. Raise an error if the editor may not
        open it. A session that began on another surface can be opened only if `directory` is in its own workspace."""
        row = self._store.get_session(session_id)
        if row is None:
            raise errors.make_error(errors.UnknownSession, f"Session not found: {session_id:.80}")
        stored = find_directory(row)
        if row["source"] != ACP:
            workspace = None if stored is None else self._store.workspace_of(stored)
            if workspace != self._store.workspace_of(directory):
                where = "no workspace" if workspace is None else f"the workspace {workspace}"
                raise WrongDirectory(f"session {session_id} belongs to {where}, not to {directory}")
        return self._store.get_compression_tip(session_id)

    async def _close(self, session_id: str) -> None:
        async with self._opening:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                await session.close()

    def _announce(self, session: EditorSession, request: OpenRequest) -> dict[str, Any]:
        """Return the fields that every response to a request that opens a session has. Schedule the updates that are
        sent after the response."""
        servers = [make_printable(server.name, width_limit=60) for server in request.mcp_servers or ()]
        notice = NO_MCP.format(", ".join(servers)) if servers else None
        if notice is not None:
            _log.warning("%s", notice)
        session.announce(notice)
        return {
            "modes": session.list_modes(),
            "config_options": list(session.list_config_options()),
            "field_meta": {"hermes": {"unsupportedMcpServers": servers}} if servers else None,
        }


class Route(NamedTuple):
    models: tuple[type[BaseModel], ...]
    """The possible types of the parameters. The first one that accepts the parameters is used."""
    run: Callable[[AcpServer, Any], Awaitable[BaseModel | None]]


ROUTES = {
    AGENT_METHODS["initialize"]: Route((InitializeRequest,), AcpServer.initialize),
    AGENT_METHODS["authenticate"]: Route((AuthenticateRequest,), AcpServer.authenticate),
    AGENT_METHODS["session_new"]: Route((NewSessionRequest,), AcpServer.new_session),
    AGENT_METHODS["session_load"]: Route((LoadSessionRequest,), AcpServer.load_session),
    AGENT_METHODS["session_resume"]: Route((ResumeSessionRequest,), AcpServer.resume_session),
    AGENT_METHODS["session_fork"]: Route((ForkSessionRequest,), AcpServer.fork_session),
    AGENT_METHODS["session_list"]: Route((ListSessionsRequest,), AcpServer.list_sessions),
    AGENT_METHODS["session_close"]: Route((CloseSessionRequest,), AcpServer.close_session),
    AGENT_METHODS["session_delete"]: Route((DeleteSessionRequest,), AcpServer.delete_session),
    AGENT_METHODS["session_prompt"]: Route((PromptRequest,), AcpServer.prompt),
    AGENT_METHODS["session_cancel"]: Route((CancelNotification,), AcpServer.cancel),
    AGENT_METHODS["session_set_mode"]: Route((SetSessionModeRequest,), AcpServer.set_mode),
    AGENT_METHODS["session_set_config_option"]: Route(
        (SetSessionConfigOptionSelectRequest, SetSessionConfigOptionBooleanRequest), AcpServer.set_option
    ),
}
"""The methods of the protocol. The SDK's own table has no `session/delete`."""


def _validate(models: Iterable[type[BaseModel]], params: Any) -> BaseModel:
    first: ValidationError | None = None
    for model in models:
        try:
            return model.model_validate({} if params is None else params)
        except ValidationError as problem:
            first = first or problem
    assert first is not None
    raise first


def _describe_invalid(method: str, problem: ValidationError) -> str:
    found = problem.errors()[0]
    place = ".".join(map(str, found["loc"])) or "params"
    return _to_one_line(f"{method}: {place}: {found['msg']}")


def _find_code(problem: errors.HermesError) -> int:
    return next((code for kind, code in CODES if isinstance(problem, kind)), INTERNAL)


def _describe(problem: errors.HermesError) -> str:
    if isinstance(problem, errors.LeaseHeld) and isinstance(problem.holder, Lease):
        holder = problem.holder.holder
        return (
            f"the conversation is open elsewhere: {holder.surface}, process {holder.pid} on {holder.host}; close it"
            " there first, or fork the session"
        )
    return str(problem)


def _to_one_line(text: str) -> str:
    """Return an error message without line ends and secrets."""
    line = " ".join(text.split())
    try:
        line = hide_secrets(line)
    except (errors.HermesError, OSError):  # the settings cannot be read
        line = redact_text(line)
    return make_printable(line, width_limit=500)


def _check_directory(cwd: str) -> Path:
    directory = Path(cwd)
    if not directory.is_absolute():
        raise WrongDirectory(f"cwd must be an absolute path, not {cwd!r:.200}")
    if not directory.is_dir():
        raise WrongDirectory(f"there is no directory {cwd!r:.200}")
    return directory
