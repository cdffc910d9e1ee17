"""What everybody in the gateway works with: the store, the settings, the platforms, and where answers are posted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes import clock
from hermes.gateway.adapter import Adapter, Choice
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.metrics import GatewayMetrics
from hermes.gateway.outbound.splitting import split
from hermes.gateway.sessions.agents import Minds
from hermes.gateway.settings import GatewaySettings, PlatformSettings

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB
    from hermes.gateway.inbound.access_control import Doorkeeper

Fate = Callable[[str, str | None], None]
"""Told what became of a message, `sent`, `failed` or `unknown`, and its id on the platform."""

LONGEST_UNKNOWN = 4000
"""How long a part may be for a platform that is not connected now."""


class Letter(NamedTuple):
    """What the outbox keeps of a message to a platform."""

    to: Source
    text: str
    reply_to: str | None = None
    silent: bool = False
    edits: str | None = None
    """The id of a message that this text takes the place of."""
    choices: tuple[Choice, ...] = ()
    """Buttons, where the platform has them."""

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "to": self.to.to_dict()}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Letter:
        choices = tuple(Choice(*choice) for choice in told.get("choices", ()))
        return cls(**{**told, "to": Source.from_dict(told["to"]), "choices": choices})


class Office:
    def __init__(
        self,
        db: SessionDB,
        settings: GatewaySettings,
        adapters: Mapping[str, Adapter],
        minds: Minds,
        doorkeeper: Doorkeeper,
        metrics: GatewayMetrics,
    ) -> None:
        self.db, self.settings, self.adapters = db, settings, adapters
        self.minds, self.doorkeeper, self.metrics = minds, doorkeeper, metrics
        self.deliver: Callable[[str], None] = lambda key: None
        """Told the key of a chat for which something is in the outbox."""
        self.is_delivering: Callable[[str], bool] = lambda key: False
        """Whether something is on its way to a chat, or waits for another try."""
        self.changed: Callable[[], None] = lambda: None
        """Told that something about a chat is different now."""
        self.approval_seconds: float = 10 * clock.MINUTE
        """How long an approval may wait for an answer."""
        self._fates: dict[str, Fate] = {}

    def platform(self, name: str) -> PlatformSettings:
        return self.settings.platforms.get(name) or PlatformSettings(name)

    def keep_setting(self, key: str, value: object) -> None:
        """Write one value of a platform to config.yaml, by its dotted path; it counts from now on."""
        from hermes.config import config_file

        config_file.change(key, value)
        _, name, field = key.split(".")
        told: dict[str, Any] = {field: value}
        changed = self.platform(name)._replace(**told)
        self.settings = self.settings._replace(platforms={**self.settings.platforms, name: changed})

    async def post(self, key: str, letter: Letter, once: str, session_id: str | None = None) -> bool:
        """Put a message into the outbox, in as many parts as the platform needs; once, whoever asks twice.

        False if it had been sent before.
        """
        adapter = self.adapters.get(letter.to.platform)
        parts = (
            split(letter.text, LONGEST_UNKNOWN)
            if adapter is None
            else split(letter.text, adapter.can.longest, adapter.measure)
        )

        def put() -> set[str]:
            states = set()
            for number, text in enumerate(parts):
                part = letter._replace(
                    text=text,
                    edits=letter.edits if number == 0 else None,
                    reply_to=letter.reply_to if number == 0 else None,
                    choices=letter.choices if number == len(parts) - 1 else (),
                )
                entry = self.db.outbox.put(
                    key, letter.to.platform, part.to_dict(), f"{once}/{number}", session_id=session_id
                )
                states.add(entry.state)
            return states

        states = await asyncio.to_thread(put)
        self.deliver(key)
        return "queued" in states

    def watch_delivery(self, once: str, tell: Fate) -> None:
        """Call `tell` when the fate of a message in one part, which is posted after this, is known."""
        self._fates[f"{once}/0"] = tell

    def settle_delivery(self, idempotency_key: str, state: str, message_id: str | None = None) -> None:
        """The fate of a message is known."""
        tell = self._fates.pop(idempotency_key, None)
        if tell is not None:
            tell(state, message_id)
