"""Limits on concurrent work: turns, deliveries per platform, attachments and receipts.

A chat takes one slot per message. For its next message it waits behind the other chats that wait for a slot.
Therefore a chat with many messages does not block the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.agent.models import call_limit
from hermes.agent.models.call_limit import Slots

if TYPE_CHECKING:
    from hermes.gateway.settings import GatewaySettings

RECEIPTS_AT_ONCE = 64
"""How many received messages are stored at the same time. The limit slows down an adapter that waits for a receipt
before it fetches more messages."""


class WorkLimits:
    def __init__(self, settings: GatewaySettings) -> None:
        self.turns = Slots(settings.turns_at_once)
        self.attachments = Slots(settings.attachments_at_once)
        self.receipts = Slots(RECEIPTS_AT_ONCE)
        # Messages are stored first, then answered.
        self.turns.is_throttled = lambda: self.receipts.waiting > 0
        self.receipts.on_nobody_waits = self.turns.hand_out
        self.model_calls = Slots(settings.model_calls_at_once)
        self._deliveries: dict[str, Slots] = {}
        self._deliveries_at_once = settings.deliveries_at_once

    def deliveries(self, platform: str) -> Slots:
        if platform not in self._deliveries:
            self._deliveries[platform] = Slots(self._deliveries_at_once)
        return self._deliveries[platform]

    def apply(self, settings: GatewaySettings) -> None:
        """Use the limits in `settings` from now on. Work that already holds a slot continues."""
        self.turns.resize(settings.turns_at_once)
        self.attachments.resize(settings.attachments_at_once)
        self.model_calls.resize(settings.model_calls_at_once)
        self._deliveries_at_once = settings.deliveries_at_once
        for slots in self._deliveries.values():
            slots.resize(settings.deliveries_at_once)

    def limit_model_calls(self) -> None:
        """Make all agents of this process respect the limit on concurrent model calls."""
        call_limit.set_limit(self.model_calls)

    def describe(self) -> dict[str, dict[str, int]]:
        """Return the use of each limit by its name. For each one, `most` is the number of slots, `in_use` the
        number of used ones, and `waiting` the number of waiting chats or calls."""
        limits = {
            "turns": self.turns,
            "model calls": self.model_calls,
            **{f"deliveries to {name}": slots for name, slots in self._deliveries.items()},
            "attachments": self.attachments,
        }
        return {
            name: {"most": slots.most, "in_use": slots.in_use, "waiting": slots.waiting}
            for name, slots in limits.items()
        }
