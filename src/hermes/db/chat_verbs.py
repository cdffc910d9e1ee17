"""What a gateway needs that serves many chats: who works where, what came and goes, and what was handed over.

The whole store has it, a person's own handle does not. Each verb fetches its manager when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.db.handle import Row

if TYPE_CHECKING:
    from hermes.store.chats.handoff import Handoffs
    from hermes.store.chats.inbox import Inbox
    from hermes.store.chats.leases import Leases
    from hermes.store.chats.outbox import Outbox
    from hermes.store.chats.routing import Routing
    from hermes.store.chats.telegram_topics import TelegramTopics
    from hermes.store.engine import Engine
    from hermes.store.transfer.mirror_source import MirrorSource


class ChatVerbs:
    _engine: Engine

    @property
    def leases(self) -> Leases:
        """Which process works in a conversation."""
        from hermes.store.chats.leases import Leases

        return Leases(self._engine)

    @property
    def routing(self) -> Routing:
        """Which chat is in which session."""
        from hermes.store.chats.routing import Routing

        return Routing(self._engine)

    @property
    def inbox(self) -> Inbox:
        """What platforms gave us and nobody has worked on yet."""
        from hermes.store.chats.inbox import Inbox

        return Inbox(self._engine)

    @property
    def outbox(self) -> Outbox:
        """What is still to be delivered to platforms."""
        from hermes.store.chats.outbox import Outbox

        return Outbox(self._engine)

    @property
    def mirrored(self) -> MirrorSource:
        """What the files that mirror the store are made from."""
        from hermes.store.transfer.mirror_source import MirrorSource

        return MirrorSource(self._engine)

    def adopt_conversation(self, session_id: str, owner: str) -> list[str]:
        """Give a conversation of nobody's to a person or a room, with its subagents; the sessions it has."""
        from hermes.store.sessions.owners import Ownership

        return Ownership(self._engine).adopt(session_id, owner)

    # ---------------------------------------------------------------- handoff and Telegram topics

    def request_handoff(self, session_id: str, platform: str) -> bool:
        return self._handoffs.request(session_id, platform)

    def claim_handoff(self, session_id: str) -> bool:
        return self._handoffs.claim(session_id)

    def complete_handoff(self, session_id: str) -> None:
        self._handoffs.complete(session_id)

    def fail_handoff(self, session_id: str, error: str) -> None:
        self._handoffs.fail(session_id, error)

    def get_handoff_state(self, session_id: str) -> Row | None:
        return self._handoffs.get_state(session_id)

    def list_pending_handoffs(self) -> list[Row]:
        return self._handoffs.list_pending()

    def enable_telegram_topic_mode(
        self,
        *,
        chat_id: str,
        user_id: str,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
    ) -> None:
        self._topics.enable_telegram_topic_mode(
            chat_id=chat_id,
            user_id=user_id,
            has_topics_enabled=has_topics_enabled,
            allows_users_to_create_topics=allows_users_to_create_topics,
        )

    def disable_telegram_topic_mode(self, *, chat_id: str, clear_bindings: bool = True) -> None:
        self._topics.disable_telegram_topic_mode(chat_id=chat_id, clear_bindings=clear_bindings)

    def is_telegram_topic_mode_enabled(self, *, chat_id: str, user_id: str) -> bool:
        return self._topics.is_telegram_topic_mode_enabled(chat_id=chat_id, user_id=user_id)

    def get_telegram_topic_binding(self, *, chat_id: str, thread_id: str) -> Row | None:
        return self._topics.get_telegram_topic_binding(chat_id=chat_id, thread_id=thread_id)

    def bind_telegram_topic(
        self,
        *,
        chat_id: str,
        thread_id: str,
        user_id: str,
        session_key: str,
        session_id: str,
        managed_mode: str = "auto",
    ) -> None:
        self._topics.bind_telegram_topic(
            chat_id=chat_id,
            thread_id=thread_id,
            user_id=user_id,
            session_key=session_key,
            session_id=session_id,
            managed_mode=managed_mode,
        )

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        return self._topics.is_telegram_session_linked_to_topic(session_id=session_id)

    def list_unlinked_telegram_sessions_for_user(
        self, *, chat_id: str, user_id: str, limit: int = 10
    ) -> list[Row]:
        return self._topics.list_unlinked_telegram_sessions_for_user(
            chat_id=chat_id, user_id=user_id, limit=limit
        )

    @property
    def _handoffs(self) -> Handoffs:
        from hermes.store.chats.handoff import Handoffs

        return Handoffs(self._engine)

    @property
    def _topics(self) -> TelegramTopics:
        from hermes.store.chats.telegram_topics import TelegramTopics

        return TelegramTopics(self._engine)
