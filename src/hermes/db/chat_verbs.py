"""Methods for a gateway with many chats: leases, routing, inbox, outbox, handoffs and runs of jobs.

Only `SessionDB` has them. Managers are imported on first use.
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
    from hermes.store.jobs.job_runs import JobRuns
    from hermes.store.transfer.mirror_source import MirrorSource


class ChatVerbs:
    _engine: Engine

    # ---------------------------------------------------------------- chats

    @property
    def leases(self) -> Leases:
        """Leases, which record which process works in a conversation."""
        from hermes.store.chats.leases import Leases

        return Leases(self._engine)

    @property
    def routing(self) -> Routing:
        """Routes, which record the current session of each chat."""
        from hermes.store.chats.routing import Routing

        return Routing(self._engine)

    @property
    def inbox(self) -> Inbox:
        """The inbox: messages from platforms that are not answered yet."""
        from hermes.store.chats.inbox import Inbox

        return Inbox(self._engine)

    @property
    def outbox(self) -> Outbox:
        """The outbox: messages to platforms whose delivery is not confirmed yet."""
        from hermes.store.chats.outbox import Outbox

        return Outbox(self._engine)

    @property
    def job_runs(self) -> JobRuns:
        """The runs of scheduled jobs: which process took which due time, and the outcome."""
        from hermes.store.jobs.job_runs import JobRuns

        return JobRuns(self._engine)

    @property
    def mirrored(self) -> MirrorSource:
        """The data for the mirror files, which are readable copies of the store: transcripts and
        `sessions.json`."""
        from hermes.store.transfer.mirror_source import MirrorSource

        return MirrorSource(self._engine)

    def adopt_conversation(self, session_id: str, owner: str) -> list[str]:
        """Assign a conversation without an owner, and its subagents, to a person or a room. Return the ids of
        its sessions."""
        from hermes.store.sessions.owners import Ownership

        return Ownership(self._engine).adopt(session_id, owner)

    # ---------------------------------------------------------------- handoff and Telegram topics

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask the gateway to move a session to a platform.

        Return False if a handoff of this session is already under way, or if the session is unknown.
        """
        return self._handoffs.request(session_id, platform)

    def claim_handoff(self, session_id: str) -> bool:
        """Claim the pending handoff of a session and return whether this succeeded. If several callers try, exactly one
        of them gets True."""
        return self._handoffs.claim(session_id)

    def complete_handoff(self, session_id: str) -> None:
        """Mark the claimed handoff of a session as done."""
        self._handoffs.complete(session_id)

    def fail_handoff(self, session_id: str, error: str) -> None:
        """Mark the handoff of a session as failed, with the reason."""
        self._handoffs.fail(session_id, error)

    def get_handoff_state(self, session_id: str) -> Row | None:
        """Return `state`, `platform` and `error` of the handoff of a session, or None if the session is unknown."""
        return self._handoffs.get_state(session_id)

    def list_pending_handoffs(self) -> list[Row]:
        """Return the sessions with a handoff that nobody has claimed yet, in the order of their start."""
        return self._handoffs.list_pending()

    def enable_telegram_topic_mode(
        self,
        *,
        chat_id: str,
        user_id: str,
        has_topics_enabled: bool | None = None,
        allows_users_to_create_topics: bool | None = None,
    ) -> None:
        """Record that a private Telegram chat uses topics, and the capabilities that Telegram
        reports for it."""
        self._topics.enable_telegram_topic_mode(
            chat_id=chat_id,
            user_id=user_id,
            has_topics_enabled=has_topics_enabled,
            allows_users_to_create_topics=allows_users_to_create_topics,
        )

    def disable_telegram_topic_mode(self, *, chat_id: str, clear_bindings: bool = True) -> None:
        """Record that a Telegram chat does not use topics. With `clear_bindings`, its topics are no longer
        bound to sessions."""
        self._topics.disable_telegram_topic_mode(chat_id=chat_id, clear_bindings=clear_bindings)

    def is_telegram_topic_mode_enabled(self, *, chat_id: str, user_id: str) -> bool:
        """Return whether this person's private Telegram chat uses topics."""
        return self._topics.is_telegram_topic_mode_enabled(chat_id=chat_id, user_id=user_id)

    def get_telegram_topic_binding(self, *, chat_id: str, thread_id: str) -> Row | None:
        """Return the row that binds a Telegram topic to a session. Return None if the topic is not bound."""
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
        """Bind a session to a Telegram topic, in place of the session that was bound to the topic before. A session can
        be bound to one topic only."""
        self._topics.bind_telegram_topic(
            chat_id=chat_id,
            thread_id=thread_id,
            user_id=user_id,
            session_key=session_key,
            session_id=session_id,
            managed_mode=managed_mode,
        )

    def is_telegram_session_linked_to_topic(self, *, session_id: str) -> bool:
        """Return whether a session is bound to a Telegram topic."""
        return self._topics.is_telegram_session_linked_to_topic(session_id=session_id)

    def list_unlinked_telegram_sessions_for_user(
        self, *, chat_id: str, user_id: str, limit: int = 10
    ) -> list[Row]:
        """Return conversations of a person that are bound to no Telegram topic, most recent activity first."""
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
