"""The gateway program: assembly, start, supervision and shutdown.

On SIGTERM the gateway stops accepting messages and lets running turns finish. Waiting messages stay in the store.
If the process is killed, no accepted message is lost. The next start resumes waiting and unfinished messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes import clock, errors, home, secrets
from hermes.agent import auto_maintenance
from hermes.config.settings import read_settings
from hermes.conversation.agents import StandardAgentProvider
from hermes.db.store_queue import StoreQueue
from hermes.gateway import registry
from hermes.gateway.adapter import Adapter, AdapterError
from hermes.gateway.context import GatewayAgents, GatewayContext
from hermes.gateway.http import limits
from hermes.gateway.inbound.access_control import AccessControl
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.inbound.router import Router
from hermes.gateway.mirror import transcripts
from hermes.gateway.mirror.sessions_json import IndexFile, is_enabled
from hermes.gateway.mirror.transcripts import Transcripts
from hermes.gateway.ops import requests, service_manager
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.ops.status_file import gateway_folder, remove_status, write_status
from hermes.gateway.outbound.delivery import Delivery
from hermes.gateway.outbound.retry import until_stored
from hermes.gateway.platform_connections import UP, Connections, PlatformState
from hermes.gateway.platform_setup import make_adapters as make_adapters
from hermes.gateway.reload import Reloader
from hermes.gateway.scheduled_jobs import make_job_tools, make_ticker
from hermes.gateway.sessions import handoffs, legacy_routing, reset_scheduler
from hermes.gateway.sessions.session_lookup import SessionLookup
from hermes.gateway.settings import GatewaySettings
from hermes.gateway.work_limits import WorkLimits

if TYPE_CHECKING:
    from hermes.agent.models.model import CallReport
    from hermes.db.session_db import SessionDB
    from hermes.gateway.ops.health import QueueSizes

log = logging.getLogger(__name__)

THREADS = 16
"""Number of threads for files, searches and other long work. Short store calls have their own thread, see
`db.store_queue`."""
STATUS_EVERY_S = 5.0
STDERR = 2
LEAST_DRAIN_S = 1.0
"""Minimum time that running deliveries get to finish during shutdown, in seconds. They get it even if the running
turns have used up `drain_seconds`."""
DONE_RETENTION_S = 7 * clock.DAY
"""How long finished inbox and outbox entries are kept, in seconds. With them, a message that a platform delivers
again is recognised."""
WRITE_PROBE_KEY = "gateway_last_look"
"""Metadata key that is written to check whether the store is writable."""


@runtime_checkable
class ConversationAdapter(Protocol):
    """An adapter that runs turns itself and returns the answer to a waiting client, such as an API request. Its
    messages do not pass through the inbox and a mailbox."""

    def attach(self, context: GatewayContext, lookup: SessionLookup) -> None: ...


@runtime_checkable
class ObservedAgents(Protocol):
    """A factory of agents that can report every model call to an observer."""

    def observe_calls(self, observe: Callable[[CallReport, float | None], None]) -> None: ...


class Gateway:
    def __init__(
        self, db: SessionDB, settings: GatewaySettings, adapters: Mapping[str, Adapter], agents: GatewayAgents
    ) -> None:
        self.db, self.adapters = db, dict(adapters)
        self.began = clock.now()
        home.make_private_folder(gateway_folder())
        pairings = Pairings(gateway_folder())
        pairings.hold_key()
        access = AccessControl(settings, pairings)
        metrics = GatewayMetrics(list(dict.fromkeys((*registry.PLATFORMS, *adapters))))
        if isinstance(agents, ObservedAgents):
            agents.observe_calls(metrics.count_call)
        access.on_wrong_code = lambda platform: metrics.auth_failures.add(platform, "code")
        self.limits = WorkLimits(settings)
        self.delivery = Delivery(db, self.adapters, metrics, self.limits.deliveries)
        self.context = GatewayContext(
            db, settings, self.adapters, agents, access, metrics, self.delivery, self.limits
        )
        self.lookup = SessionLookup(db, settings.keying)
        self.router = Router(self.context, self.lookup)
        self.connections = Connections(self.adapters, self.router.receive, self._on_platform_state)
        self.sessions = db.db_path.parent / "sessions"
        program = read_settings()
        self.context.approval_seconds = program.approvals.timeout_minutes * clock.MINUTE
        which = transcripts.choose_transcripts(program.sessions.transcripts, db.db_path)
        has_index = is_enabled(program.sessions.index_file, db.db_path)
        self.mirrors = (
            Transcripts(db, self.sessions, which),
            IndexFile(db, self.sessions, enabled=has_index),
        )
        self.jobs = make_ticker(self.context)
        self._ending, self._state_changed = asyncio.Event(), asyncio.Event()
        self.context.notify_chat_changed = self.mirrors[1].touch
        self._background: list[asyncio.Task[None]] = []
        self._mirroring: list[asyncio.Task[None]] = []
        self._operations: set[asyncio.Task[None]] = set()
        """Tasks that serve operators, such as a reload. Shutdown ends them before it closes anything."""
        self._health: asyncio.Task[None] | None = None
        self._draining = False
        self._store_queue: StoreQueue | None = None
        self._resuming: asyncio.Task[None] | None = None
        for adapter in adapters.values():
            self._attach(adapter)
        self.reloader = Reloader(
            self.context,
            self.router,
            self.lookup,
            self.connections,
            self.adapters,
            self._attach,
            self._restart_health,
        )

    @property
    def settings(self) -> GatewaySettings:
        """The current settings. A reload replaces them."""
        return self.context.settings

    def _attach(self, adapter: Adapter) -> None:
        if isinstance(adapter, ConversationAdapter):
            adapter.attach(self.context, self.lookup)

    async def start(self) -> None:
        """Start the health server, connect the platforms and start the background tasks. The unfinished work of
        the previous process is resumed in the background, within the same limits as new work."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "work"))
        self._store_queue = StoreQueue(self.db)
        limits.set_limits(self.settings.limits, self.context.metrics.auth_failures.add)
        self.limits.limit_model_calls()
        self._restart_health()
        await asyncio.to_thread(
            legacy_routing.import_once, self.db, self.sessions / "sessions.json", self.settings.keying
        )
        await self.delivery.settle_interrupted()
        self.connections.open()
        self._resuming = asyncio.create_task(self._resume())
        self._resuming.add_done_callback(_log_failure)
        self._start_background(reset_scheduler.watch_resets(self.context, self.router))
        self._start_background(handoffs.watch_handoffs(self.context, self.router))
        self._mirroring = [asyncio.create_task(mirror.follow(self._ending)) for mirror in self.mirrors]
        if self.jobs is not None:
            self._start_background(self.jobs.watch())
        self._start_background(self._update_status())
        self._start_background(self._housekeeping())
        self._operate(requests.serve_requests(self._request_handlers()))
        if service_manager.get_watchdog_seconds() is not None:
            self._start_background(service_manager.feed_watchdog())

    async def _resume(self) -> None:
        """Deliver the outbox entries and process the inbox messages that the previous gateway process left."""
        await asyncio.gather(until_stored(self.delivery.take_up), until_stored(self.router.resume_inbox))

    async def close(self) -> None:
        """Shut the gateway down step by step. Unfinished messages and deliveries stay in the store for the next
        start."""
        self._draining = True
        service_manager.notify(service_manager.STOPPING)
        operations = list(self._operations)
        for task in operations:
            task.cancel()
        await asyncio.gather(*operations, return_exceptions=True)
        self.router.stop_accepting()
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.gather(self._resuming, return_exceptions=True)
        await self.connections.stop_receiving()
        until = monotonic() + self.settings.drain_seconds
        closing_jobs = [] if self.jobs is None else [self.jobs.close(until - monotonic())]
        await asyncio.gather(self.router.close(until - monotonic()), *closing_jobs)
        await self.delivery.close(max(LEAST_DRAIN_S, until - monotonic()))
        await self.connections.close()
        await self.context.agents.close()
        self._ending.set()
        await asyncio.gather(*self._mirroring, return_exceptions=True)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._store_queue is not None:
            await self._store_queue.close()
        remove_status()

    def reload(self) -> None:
        """Start a reload of the settings in the background. Called on SIGHUP. A refused reload is logged."""

        async def work() -> None:
            with suppress(errors.HermesError):
                await self._reload_on_request()

        self._operate(work())

    def _operate(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._operations.add(task)
        task.add_done_callback(_log_failure)
        task.add_done_callback(self._operations.discard)

    async def _reload_on_request(self) -> dict[str, Any]:
        service_manager.notify_reloading()
        try:
            return (await self.reloader.reload())._asdict()
        finally:
            service_manager.notify(service_manager.READY)
            self._state_changed.set()

    def _request_handlers(self) -> requests.Handlers:
        """Return the actions that the command line can request from the running gateway, by name."""
        return {
            "reload": self._reload_on_request,
            "blocked": self._stop_blocked,
            "outbox": self._take_up_outbox,
        }

    async def _take_up_outbox(self) -> dict[str, Any]:
        """Deliver the outbox entries that another process, such as a `hermes` command, has put back into the queue.
        Return an empty result for the requester."""
        await self.delivery.take_up()
        return {}

    async def _stop_blocked(self) -> dict[str, Any]:
        return {"stopped": await self.router.stop_blocked()}

    def _restart_health(self) -> None:
        if self._health is not None:
            self._health.cancel()
            self._background.remove(self._health)
            self._health = None
        if self.settings.health_port:
            self._start_background(self._serve_health())
            self._health = self._background[-1]

    def _start_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(_log_failure)
        self._background.append(task)

    def _on_platform_state(self, now: PlatformState) -> None:
        log.log(
            logging.INFO if now.error is None else logging.WARNING,
            "%s: %s%s",
            now.name,
            now.state,
            f" ({now.error})" if now.error else "",
        )
        self._state_changed.set()
        if now.state == UP:
            self.delivery.retry_now(now.name)

    # ---------------------------------------------------------------- status and health

    async def _update_status(self) -> None:
        while True:
            with suppress(errors.StoreError, OSError):
                platforms = {name: state._asdict() for name, state in self.connections.states.items()}
                write = partial(write_status, self.began, platforms)
                waiting = await self._waiting()
                problem = await asyncio.to_thread(self.context.access.pairing_problem)
                await asyncio.to_thread(
                    write,
                    waiting_in=waiting.inbox,
                    waiting_out=waiting.outbox,
                    problem=problem,
                    limits=self.limits.describe(),
                )
            # `wait_for` loses a cancellation before Python 3.12 if the event is set at that moment. The
            # gateway would then never end.
            with suppress(TimeoutError):
                async with asyncio.timeout(STATUS_EVERY_S):
                    await self._state_changed.wait()
            self._state_changed.clear()

    async def _serve_health(self) -> None:
        from hermes.gateway.http.host import serve
        from hermes.gateway.ops.health import HealthSources, health_app
        from hermes.gateway.ops.readings import take_readings

        async def write() -> None:
            await asyncio.to_thread(self.db.set_meta, WRITE_PROBE_KEY, f"{clock.now():.0f}")

        watched = HealthSources(
            self.began,
            lambda: list(self.connections.states.values()),
            write,
            self._waiting,
            self.context.metrics,
            lambda: asyncio.to_thread(take_readings, self.db, self.context.metrics),
            lambda: self._draining,
        )
        try:
            await serve(health_app(watched), self.settings.health_host, self.settings.health_port)
        except AdapterError as problem:
            log.error("cannot serve /healthz and /metrics: %s; change gateway.health_port", problem)

    async def _waiting(self) -> QueueSizes:
        from hermes.gateway.ops.health import QueueSizes

        inbox = await asyncio.to_thread(self.db.inbox.count_waiting)
        return QueueSizes(inbox, await asyncio.to_thread(self.db.outbox.count_waiting))

    async def _housekeeping(self) -> None:
        with suppress(errors.StoreError):
            summary = await auto_maintenance.tidy_in_thread(self.db)
            if summary:
                log.info("%s", summary)
        while True:
            with suppress(errors.StoreError):
                await asyncio.to_thread(self.db.inbox.forget_done, DONE_RETENTION_S)
                await asyncio.to_thread(self.db.outbox.forget_sent, DONE_RETENTION_S)
            await asyncio.sleep(clock.HOUR)


async def run_gateway(settings: GatewaySettings) -> None:
    """Run the gateway until SIGTERM or Ctrl-C. Raise `HermesError` if no platform can be connected."""
    from hermes.agent.factory import StandardFactory
    from hermes.db.session_db import SessionDB

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    hung_up, has_terminal = asyncio.Event(), os.isatty(STDERR)

    def on_hangup() -> None:
        # A closed terminal sends SIGHUP too. In that case the gateway ends.
        (stop if has_terminal and not os.isatty(STDERR) else hung_up).set()

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    adapters, broken = make_adapters(settings)
    if not adapters:
        raise no_platform_error(broken)
    db = SessionDB(spool=True)
    agents = StandardAgentProvider(StandardFactory(make_more_tools=make_job_tools))
    gateway = Gateway(db, settings, adapters, agents)
    for name, why in broken.items():
        gateway.connections.add_broken(name, why)
    await gateway.start()
    service_manager.notify(service_manager.READY)
    try:
        await _check_model(agents)
        while await _wait_for_any(stop, gateway.connections.hopeless, hung_up) is hung_up:
            hung_up.clear()
            gateway.reload()
        log.info("shutting down; running turns have %g seconds to finish", gateway.settings.drain_seconds)
        states = gateway.connections.states.values()
        wrong = {state.name: state.error or state.state for state in states}
    finally:
        await gateway.close()
        await asyncio.to_thread(db.close)
    if not stop.is_set():
        raise no_platform_error(wrong)


def no_platform_error(wrong: Mapping[str, str]) -> errors.HermesError:
    reasons = "; ".join(f"{name}: {why}" for name, why in wrong.items())
    return errors.HermesError(f"no platform can be connected ({reasons})")


async def _check_model(agents: StandardAgentProvider) -> None:
    """Open the model when the gateway starts, and log an error if that fails. The operator then sees the error
    before the first message arrives."""
    try:
        await agents.open_model()
    except errors.HermesError as problem:
        log.warning("messages cannot be answered: %s", secrets.redact(str(problem)))


async def _wait_for_any(*events: asyncio.Event) -> asyncio.Event:
    """Wait until at least one of `events` is set, and return it. If several are set, return the first in the order
    of the arguments."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return next(event for event in events if event.is_set())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("a background task failed: %s", problem)
