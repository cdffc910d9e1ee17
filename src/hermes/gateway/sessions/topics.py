"""Telegram topics in the private chat of one user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes.gateway import registry
from hermes.gateway.inbound_events import Source

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


def open_topics(db: SessionDB, source: Source) -> UserTopics | None:
    """Return the topics of a private chat. Return None on other platforms, in groups, and for senders without
    an id."""
    platform = registry.PLATFORMS.get(source.platform)
    if platform is None or not platform.has_topics or source.chat_type != "dm" or not source.user_id:
        return None
    return UserTopics(db, source.chat_id, source.user_id)


class UserTopics:
    def __init__(self, db: SessionDB, chat_id: str, user_id: str) -> None:
        self._db, self._chat, self._user = db, chat_id, user_id

    def is_enabled(self) -> bool:
        return self._db.is_telegram_topic_mode_enabled(chat_id=self._chat, user_id=self._user)

    def enable(self) -> None:
        self._db.enable_telegram_topic_mode(chat_id=self._chat, user_id=self._user)

    def disable(self) -> None:
        self._db.disable_telegram_topic_mode(chat_id=self._chat)

    def find_binding(self, thread_id: str) -> dict[str, Any] | None:
        return self._db.get_telegram_topic_binding(chat_id=self._chat, thread_id=thread_id)

    def bind(self, thread_id: str, session_key: str, session_id: str) -> None:
        self._db.bind_telegram_topic(
            chat_id=self._chat,
            thread_id=thread_id,
            user_id=self._user,
            session_key=session_key,
            session_id=session_id,
        )

    def list_unlinked(self, limit: int = 10) -> list[dict[str, Any]]:
        return self._db.list_unlinked_telegram_sessions_for_user(
            chat_id=self._chat, user_id=self._user, limit=limit
        )
