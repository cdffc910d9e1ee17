"""The gateway as a program: everything put together, started, watched and brought to its end.

On SIGTERM nothing more comes in, what is being answered may come to its end, and what waits is in the store for the
next start. A kill at any moment loses no more than that.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes import clock, errors, home, secrets
from hermes.agent import auto_maintenance
from hermes.config.settings import read_settings
from hermes.gateway import registry
from hermes.gateway.adapter import Adapter, AdapterError
from hermes.gateway.context import Office
from hermes.gateway.http import limits
from hermes.gateway.inbound.access_control import Doorkeeper
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.inbound.router import Router
from hermes.gateway.mirror import transcripts
from hermes.gateway.mirror.sessions_json import IndexFile, is_enabled
from hermes.gateway.mirror.transcripts import Transcripts
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.ops.status_file import gateway_folder, remove_status, write_status
from hermes.gateway.outbound.delivery import Delivery
from hermes.gateway.platform_connections import UP, Connections, PlatformState
from hermes.gateway.sessions import handoffs, legacy_routing, reset_scheduler
from hermes.gateway.sessions.agents import Minds, StandardMinds
from hermes.gateway.sessions.session_lookup import Places
from hermes.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.gateway.ops.health import Waiting

log = logging.getLogger(__name__)

STORE_THREADS = 16
"""Calls of the store that wait for each other's commit: that is what makes them cheap."""
STATUS_EVERY_S = 5.0
KEPT_S = 7 * clock.DAY
"""How long it is remembered which messages were worked on, so that none is worked on twice."""
LAST_LOOK = "gateway_last_look"
"""What is written to find out whether the store can be written."""


@runtime_checkable
class Resident(Protocol):
    """An adapter that works in conversations itself: a request is answered while who asked waits."""

    def move_in(self, office: Office, places: Places) -> None: ...


class Gateway:
    def __init__(
        self, db: SessionDB, settings: GatewaySettings, adapters: Mapping[str, Adapter], minds: Minds
    ) -> None:
        self.db, self.settings, self.adapters = db, settings, adapters
        self.began = clock.now()
        home.make_private_folder(gateway_folder())
        pairings = Pairings(gateway_folder())
        pairings.hold_key()
        doorkeeper = Doorkeeper(settings, pairings)
        self.office = Office(db, settings, adapters, minds, doorkeeper, GatewayMetrics(list(adapters)))
        self.places = Places(db, settings.keying)
        self.delivery = Delivery(self.office)
        self.router = Router(self.office, self.places)
        self.connections = Connections(adapters, self.router.receive, self._changed)
        self.sessions = db.db_path.parent / "sessions"
        program = read_settings()
        self.office.approval_seconds = program.approvals.timeout_minutes * clock.MINUTE
        which = transcripts.chosen(program.sessions.transcripts, db.db_path)
        has_index = is_enabled(program.sessions.index_file, db.db_path)
        self.mirrors = (
            Transcripts(db, self.sessions, which),
            IndexFile(db, self.sessions, enabled=has_index),
        )
        self._ending, self._news = asyncio.Event(), asyncio.Event()
        self.office.changed = self.mirrors[1].touch
        self._beside: list[asyncio.Task[None]] = []
        self._mirroring: list[asyncio.Task[None]] = []
        for adapter in adapters.values():
            if isinstance(adapter, Resident):
                adapter.move_in(self.office, self.places)

    async def start(self) -> None:
        """Go on with what the last process left, then connect."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(STORE_THREADS, "store"))
        limits.set_limits(self.settings.limits)
        await asyncio.to_thread(
            legacy_routing.take_over_once, self.db, self.sessions / "sessions.json", self.settings.keying
        )
        await self.delivery.after_crash()
        chats = await self.router.take_up()
        if chats:
            log.info("going on with what waited in %d chat(s)", chats)
        self.connections.open()
        self._beside_us(reset_scheduler.watch(self.office, self.router))
        self._beside_us(handoffs.watch(self.office, self.router))
        self._mirroring = [asyncio.create_task(mirror.follow(self._ending)) for mirror in self.mirrors]
        self._beside_us(self._keep_status())
        self._beside_us(self._housekeeping())
        if self.settings.health_port:
            self._beside_us(self._be_watched())

    async def close(self) -> None:
        """Bring everything to its end; what is not done by then is in the store."""
        self.router.begin_no_more()
        await self.connections.stop_receiving()
        await self.router.close(self.settings.drain_seconds)
        await self.delivery.close(self.settings.drain_seconds)
        await self.connections.close()
        await self.office.minds.close()
        self._ending.set()
        await asyncio.gather(*self._mirroring, return_exceptions=True)
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        remove_status()

    def _beside_us(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(_told_if_broken)
        self._beside.append(task)

    def _changed(self, now: PlatformState) -> None:
        log.log(
            logging.INFO if now.error is None else logging.WARNING,
            "%s: %s%s",
            now.name,
            now.state,
            f" ({now.error})" if now.error else "",
        )
        self._news.set()
        if now.state == UP:
            self.delivery.hurry(now.name)

    # ---------------------------------------------------------------- what others look at

    async def _keep_status(self) -> None:
        while True:
            with suppress(errors.StoreError, OSError):
                platforms = {name: one._asdict() for name, one in self.connections.states.items()}
                told = partial(write_status, self.began, platforms)
                waiting = await self._waiting()
                problem = await asyncio.to_thread(self.office.doorkeeper.pairing_problem)
                await asyncio.to_thread(
                    told, waiting_in=waiting.inbox, waiting_out=waiting.outbox, problem=problem
                )
            # Not `wait_for`: before Python 3.12 it forgets that it was cancelled if there is news at that moment,
            # and the gateway would never end.
            with suppress(TimeoutError):
                async with asyncio.timeout(STATUS_EVERY_S):
                    await self._news.wait()
            self._news.clear()

    async def _be_watched(self) -> None:
        from hermes.gateway.http.host import serve
        from hermes.gateway.ops.health import Watched, health_app

        async def write() -> None:
            await asyncio.to_thread(self.db.set_meta, LAST_LOOK, f"{clock.now():.0f}")

        watched = Watched(
            self.began,
            lambda: list(self.connections.states.values()),
            write,
            self._waiting,
            self.office.metrics,
        )
        try:
            await serve(health_app(watched), self.settings.health_host, self.settings.health_port)
        except AdapterError as problem:
            log.error("there is no /healthz and no /metrics: %s (gateway.health_port moves them)", problem)

    async def _waiting(self) -> Waiting:
        from hermes.gateway.ops.health import Waiting

        inbox = await asyncio.to_thread(self.db.inbox.count_waiting)
        return Waiting(inbox, await asyncio.to_thread(self.db.outbox.count_waiting))

    async def _housekeeping(self) -> None:
        with suppress(errors.StoreError):
            told = await auto_maintenance.tidy_in_thread(self.db)
            if told:
                log.info("%s", told)
        while True:
            with suppress(errors.StoreError):
                await asyncio.to_thread(self.db.inbox.forget_done, KEPT_S)
                await asyncio.to_thread(self.db.outbox.forget_sent, KEPT_S)
            await asyncio.sleep(clock.HOUR)


async def run_gateway(settings: GatewaySettings) -> None:
    """Run until somebody says that it is enough (SIGTERM, Ctrl-C). Refused if nothing can ever be connected."""
    from hermes.agent.factory import StandardFactory
    from hermes.db.session_db import SessionDB

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for told in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(told, stop.set)
    adapters, broken = connected(settings)
    if not adapters:
        raise nothing_connected(broken)
    db, minds = SessionDB(spool=True), StandardMinds(StandardFactory())
    gateway = Gateway(db, settings, adapters, minds)
    for name, why in broken.items():
        gateway.connections.leave_out(name, why)
    await gateway.start()
    try:
        await _look_at_the_model(minds)
        await _first_of(stop, gateway.connections.hopeless)
        log.info("ending; what is being answered has %g seconds", settings.drain_seconds)
        states = gateway.connections.states.values()
        wrong = {one.name: one.error or one.state for one in states}
    finally:
        await gateway.close()
        await asyncio.to_thread(db.close)
    if not stop.is_set():
        raise nothing_connected(wrong)


def connected(settings: GatewaySettings) -> tuple[dict[str, Adapter], dict[str, str]]:
    """An adapter for each platform, and for each of which none can be made, why."""
    made: dict[str, Adapter] = {}
    broken: dict[str, str] = {}
    for name, platform in settings.enabled.items():
        folder = gateway_folder() / name
        home.make_private_folder(folder)
        try:
            made[name] = registry.adapter_class(name)(platform, folder)
        except AdapterError as problem:
            broken[name] = str(problem)
        except Exception as problem:  # whatever its SDK does not like here, the others do not suffer for it
            log.error("%s is not connected: %s", name, secrets.redact(repr(problem)), exc_info=True)
            broken[name] = f"unexpected {type(problem).__name__}"
    return made, broken


def nothing_connected(wrong: Mapping[str, str]) -> errors.HermesError:
    told = "; ".join(f"{name}: {why}" for name, why in wrong.items())
    return errors.HermesError(f"no platform can be connected ({told})")


async def _look_at_the_model(minds: StandardMinds) -> None:
    """Whoever starts the gateway should hear that nobody will be answered, not whoever speaks first."""
    try:
        await minds.ready()
    except errors.HermesError as problem:
        log.warning("nobody will be answered: %s", secrets.redact(str(problem)))


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()


def _told_if_broken(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("something beside the conversations ended: %s", problem)
