"""SessionDB: the public face of the store. Every verb is one line into the manager of its noun.

It may be shared between threads; several processes may have the same file open. What a verb returns from is durable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes import errors, home
from hermes.care import Care
from hermes.conversations import Conversations
from hermes.recall.legacy_query import sanitize_fts5_query
from hermes.recall.messages import MessageSearch
from hermes.store import titles
from hermes.store.blobs import Blobs
from hermes.store.handoff import Handoffs
from hermes.store.lineage import Lineage
from hermes.store.listing import Listing
from hermes.store.messages import Messages
from hermes.store.meta import Meta
from hermes.store.open import SCHEMA_VERSION, diagnose_file, open_engine, repair_file, restore_file
from hermes.store.retention import Retention
from hermes.store.sessions import Belonging, Sessions, Usage
from hermes.store.titles import Titles
from hermes.store.topics import TelegramTopics
from hermes.store.transfer import Transfer
from hermes.store.values import (
    Backup,
    Collected,
    ExportedSessions,
    Health,
    Imported,
    Optimized,
    Repair,
    ScrubReceipt,
    SearchResults,
)

if TYPE_CHECKING:
    from hermes.store.findings import Diagnosis
    from hermes.store.maintenance import Maintenance
    from hermes.store.spool import SpoolStatus
    from hermes.store.spooling import Spooling

T = TypeVar("T")
Row = dict[str, Any]

__all__ = ["SCHEMA_VERSION", "SessionDB", "format_session_db_unavailable", "get_last_init_error"]

_last_init_error: str | None = None

_WAL_MARKS = ("locking protocol", "not authorized", "disk i/o error")
_WAL_HINT = (
    " (this often means a network or FUSE file system, NFS or SMB for example, on which SQLite's WAL does not work:"
    " https://www.sqlite.org/wal.html)"
)


def get_last_init_error() -> str | None:
    """Why the last SessionDB of this process could not be opened; a later success does not clear it."""
    return _last_init_error


def _set_last_init_error(message: str | None) -> None:
    global _last_init_error
    _last_init_error = message


def format_session_db_unavailable(prefix: str = "Session database not available") -> str:
    cause = _last_init_error
    if not cause:
        return f"{prefix}."
    hint = _WAL_HINT if any(mark in cause.lower() for mark in _WAL_MARKS) else ""
    return f"{prefix}: {cause}{hint}."


class SessionDB(Conversations, Care):
    MAX_TITLE_LENGTH = titles.MAX_TITLE_LENGTH

    # The documented figures of the write path; the engine uses them for what they say.
    _WRITE_MAX_RETRIES = 15
    _WRITE_RETRY_MIN_S = 0.020
    _WRITE_RETRY_MAX_S = 0.150
    _CHECKPOINT_EVERY_N_WRITES = 50

    def __init__(
        self,
        db_path: Path | str | None = None,
        *,
        read_only: bool = False,
        durability: str = "full",
        spool: bool = False,
    ) -> None:
        """Open `db_path`, or `<home>/state.db`. `durability="normal"` gives up the fsync of each commit.

        With `spool` a message or a session that cannot be written (a full disk, a lock, damage) is kept beside the
        store, the error says where, and it is stored when the store is back: do not write it again yourself.
        """
        self.db_path = home.default_db_path() if db_path is None else Path(db_path)
        self._read_only, self._durability, self._spool = read_only, durability, spool
        try:
            self._open()
        except Exception as problem:
            _set_last_init_error(f"{type(problem).__name__}: {problem}")
            raise

    def _open(self) -> None:
        self._engine = open_engine(
            self.db_path,
            read_only=self._read_only,
            durability=self._durability,
            checkpoint_every_n_writes=self._CHECKPOINT_EVERY_N_WRITES,
            write_max_retries=self._WRITE_MAX_RETRIES,
            write_retry_s=(self._WRITE_RETRY_MIN_S, self._WRITE_RETRY_MAX_S),
        )
        self._spooling = self._open_spool()
        if self._spooling is not None:
            self._engine = self._spooling.engine
        self._sessions = Sessions(self._engine)
        self._messages = Messages(self._engine)
        self._titles = Titles(self._engine)
        self._lineage = Lineage(self._engine)
        self._listing = Listing(self._engine)
        self._search = MessageSearch(self._engine)
        self._retention = Retention(self._engine)
        self._transfer = Transfer(self._engine)
        self._meta = Meta(self._engine)
        self._handoffs = Handoffs(self._engine)
        self._topics = TelegramTopics(self._engine)
        self._blobs = Blobs(self._engine)
        self._create: Callable[..., str] = (self._spooling or self._sessions).create
        self._append: Callable[..., int] = (self._spooling or self._messages).append
        self._raw: Any = None
        self._lock = threading.RLock()  # where scripts written for the reference look for it

    def _open_spool(self) -> Spooling | None:
        """Store what an earlier handle had to leave in the spool; and if this one is to use it, what it writes with."""
        keeps = self._spool and self._engine.spool_allowed
        if self._read_only or not (keeps or (self.db_path.parent / "spool").is_dir()):
            return None
        from hermes.store.spooling import Spooling

        spooling = Spooling(self._engine)
        spooling.replay_at_open()
        return spooling if keeps else None

    # ---------------------------------------------------------------- sessions

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: dict[str, Any] | None = None,
        system_prompt: str | None = None,
        user_id: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        workspace: str | None = None,
        cwd: str | None = None,
        git_branch: str | None = None,
        process: str | None = None,
    ) -> str:
        """Make the session's row; for an id that exists nothing changes. An unknown parent is an error."""
        place = Belonging(workspace=workspace, cwd=cwd, git_branch=git_branch, process=process)
        return self._create(
            session_id,
            source,
            model=model,
            model_config=model_config,
            system_prompt=system_prompt,
            user_id=user_id,
            parent_session_id=parent_session_id,
            started_at=started_at,
            belonging=place if any(place) else None,
        )

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **fields: Any
    ) -> str:
        return self.create_session(session_id, source, model=model, **fields)

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End an open session. The first reason stays; an unknown id is no error."""
        self._sessions.end(session_id, end_reason)

    def reopen_session(self, session_id: str) -> None:
        self._sessions.reopen(session_id)

    def update_system_prompt(self, session_id: str, system_prompt: str | None) -> None:
        self._sessions.set_system_prompt(session_id, system_prompt)

    def update_token_counts(
        self,
        session_id: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None,
        cost_status: str | None = None,
        cost_source: str | None = None,
        pricing_version: str | None = None,
        billing_provider: str | None = None,
        billing_base_url: str | None = None,
        billing_mode: str | None = None,
        api_call_count: int = 0,
        absolute: bool = False,
    ) -> None:
        """Add to the counters, or set them (`absolute=True`). The session is made if it is not there."""
        self._sessions.update_token_counts(
            session_id,
            Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cache_read_tokens=cache_read_tokens,
                cache_write_tokens=cache_write_tokens,
                reasoning_tokens=reasoning_tokens,
                api_call_count=api_call_count,
                estimated_cost_usd=estimated_cost_usd,
                actual_cost_usd=actual_cost_usd,
                cost_status=cost_status,
                cost_source=cost_source,
                pricing_version=pricing_version,
                billing_provider=billing_provider,
                billing_base_url=billing_base_url,
                billing_mode=billing_mode,
                model=model,
            ),
            absolute=absolute,
        )

    def get_session(self, session_id: str) -> Row | None:
        return self._sessions.get(session_id)

    def session_count(self, source: str | None = None) -> int:
        return self._sessions.count(source)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The exact id, else the only id that starts so."""
        return self._sessions.resolve_id(session_id_or_prefix)

    # ---------------------------------------------------------------- messages

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,
        tool_name: str | None = None,
        tool_calls: Any = None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details: Any = None,
        codex_reasoning_items: Any = None,
        codex_message_items: Any = None,
        timestamp: float | None = None,
        *,
        platform_message_id: str | None = None,
        lease_epoch: int | None = None,
    ) -> int:
        """Store one message; its id. When this returns, the message survives a crash.

        With `lease_epoch` the row is refused (`LeaseLost`) once somebody else has taken the conversation over.
        """
        return self._append(
            session_id,
            role,
            content,
            tool_name,
            tool_calls,
            tool_call_id,
            token_count,
            finish_reason,
            reasoning,
            reasoning_content,
            reasoning_details,
            codex_reasoning_items,
            codex_message_items,
            timestamp,
            platform_message_id,
            lease_epoch,
        )

    def replace_messages(self, session_id: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Make the session hold exactly these; unchanged rows keep their id and time.

        An empty list does nothing: to empty a session there is `clear_messages`.
        """
        self._messages.replace(session_id, messages)

    def clear_messages(self, session_id: str) -> None:
        self._messages.clear(session_id)

    def get_messages(self, session_id: str) -> list[Row]:
        """The session's own rows in order, all columns, content and tool calls decoded."""
        return self._messages.of(session_id)

    def get_messages_as_conversation(self, session_id: str, include_ancestors: bool = False) -> list[Row]:
        """The live context in the shape a model takes; with ancestors, every message of the family once."""
        return self._messages.conversation(session_id, include_ancestors)

    def message_count(self, session_id: str | None = None) -> int:
        return self._messages.count(session_id)

    # ---------------------------------------------------------------- titles and lineage

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        return titles.sanitize_title(title)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """True iff there is such a session. A title in use elsewhere is a ValueError; an empty one clears."""
        return self._titles.set(session_id, title)

    def set_auto_title_if_empty(self, session_id: str, title: str) -> str | None:
        """Title a session that has none; the title it got (` (2)` if taken), or None if it had one."""
        return self._titles.set_if_empty(session_id, title)

    def get_session_title(self, session_id: str) -> str | None:
        return self._titles.get(session_id)

    def get_session_by_title(self, title: str) -> Row | None:
        return self._titles.session_by_title(title)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The newest session of the lineage that carries this name."""
        return self._titles.resolve(title)

    def get_next_title_in_lineage(self, title: str) -> str:
        return self._titles.next_in_lineage(title)

    def get_compression_tip(self, session_id: str) -> str:
        return self._lineage.compression_tip(session_id)

    def get_conversation_root(self, session_id: str) -> str | None:
        return self._lineage.conversation_root(session_id)

    def resolve_resume_session_id(self, session_id: str) -> str:
        return self._lineage.resume_target(session_id)

    # ---------------------------------------------------------------- lists and search

    def list_sessions_rich(
        self,
        source: str | None = None,
        exclude_sources: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        include_children: bool = False,
        project_compression_tips: bool = True,
        order_by_last_active: bool = False,
    ) -> list[Row]:
        """One row per conversation, with `preview` and `last_active`, newest start (or activity) first."""
        return self._listing.rich(
            source,
            exclude_sources,
            limit,
            offset,
            include_children,
            project_compression_tips,
            order_by_last_active,
        )

    def search_sessions(self, source: str | None = None, limit: int = 20, offset: int = 0) -> list[Row]:
        """Every session, children too, newest activity first."""
        return self._listing.by_activity(source, limit, offset)

    def search_messages(
        self,
        query: str,
        source_filter: Sequence[str] | None = None,
        exclude_sources: Sequence[str] | None = None,
        role_filter: Sequence[str] | None = None,
        limit: int = 20,
        offset: int = 0,
        *,
        sort: str = "relevance",
        after: float | None = None,
        before: float | None = None,
        relax: bool | None = None,
    ) -> SearchResults:
        """Messages that match: words, "phrases", AND, OR, NOT, prefix*. Any text is a valid query.

        A question that nothing matches is answered with what is nearest, and `results.relaxed` says so; with
        `relax=True` any query is, with False none.
        """
        return self._search.search(
            query,
            source_filter,
            exclude_sources,
            role_filter,
            limit,
            offset,
            sort=sort,
            after=after,
            before=before,
            relax=relax,
        )

    @staticmethod
    def _sanitize_fts5_query(query: str) -> str:
        return sanitize_fts5_query(query)

    # ---------------------------------------------------------------- export, import, delete

    def export_session(self, session_id: str) -> Row | None:
        return self._transfer.export(session_id)

    def export_all(self, source: str | None = None) -> ExportedSessions:
        """Every session with its messages, as a list that reads one session at a time."""
        return self._transfer.export_all(source)

    def iter_export(self, source: str | None = None) -> Iterator[Row]:
        return self._transfer.iter_export(source)

    def import_sessions(self, sessions: Iterable[Mapping[str, Any]]) -> Imported:
        """Take in exported sessions, losslessly; doing it twice adds nothing."""
        return self._transfer.import_sessions(sessions)

    def delete_session(
        self, session_id: str, sessions_dir: Path | None = None, *, purge: bool = False
    ) -> bool:
        """Delete a session, its messages and its files. `purge` also rewrites the store so that no byte is left."""
        return self._retention.delete(session_id, sessions_dir, purge)

    def prune_sessions(
        self, older_than_days: float = 90, source: str | None = None, sessions_dir: Path | None = None
    ) -> int:
        """Delete ended conversations without activity for so long; how many sessions went."""
        return self._retention.prune(older_than_days, source, sessions_dir)

    def list_prune_candidates(self, older_than_days: float = 90, source: str | None = None) -> list[Row]:
        """What `prune_sessions` with the same arguments would delete."""
        return self._retention.prune_candidates(older_than_days, source)

    def prune_empty_ghost_sessions(self, sessions_dir: Path | None = None) -> int:
        return self._retention.prune_empty_ghost_sessions(sessions_dir)

    def finalize_orphaned_compression_sessions(self) -> int:
        return self._retention.finalize_orphaned_compression_sessions()

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: int = 90,
        min_interval_hours: int = 24,
        vacuum: bool = True,
        sessions_dir: Path | None = None,
        *,
        trash_days: float = 30,
        thin_days: float | None = None,
    ) -> Row:
        """Maintenance, at most once per interval across all processes; never raises."""
        return self._maintenance.maybe_auto_prune_and_vacuum(
            retention_days, min_interval_hours, vacuum, sessions_dir, trash_days, thin_days
        )

    @property
    def _maintenance(self) -> Maintenance:
        from hermes.store.maintenance import Maintenance

        return Maintenance(self._engine)

    def scrub(self, secret: str, *, dry_run: bool = False) -> ScrubReceipt:
        """Remove one secret from every place of the home; running it again finishes what a crash cut short."""
        from hermes.store.scrubbing import Scrubbing

        return Scrubbing(self._engine).scrub(secret, dry_run=dry_run)

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
        return self._handoffs.state(session_id)

    def list_pending_handoffs(self) -> list[Row]:
        return self._handoffs.pending()

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

    # ---------------------------------------------------------------- the store itself

    def get_meta(self, key: str) -> str | None:
        return self._meta.get(key)

    def set_meta(self, key: str, value: str) -> None:
        self._meta.set(key, value)

    def vacuum(self) -> None:
        self._engine.vacuum()

    def optimize(self) -> Optimized:
        """Merge the search index and give free space back; for quiet moments."""
        return self._engine.optimize()

    def collect_blobs(self) -> Collected:
        """Remove attachments that no message refers to any more: other programs leave such behind."""
        return self._blobs.collect()

    def verify(self) -> Health:
        """Look for damage, and for derived data that differs from the rows; nothing is mended by looking."""
        return self._engine.verify()

    def spool_status(self) -> SpoolStatus:
        """What waits beside the store to be written, and what was refused when it was tried."""
        from hermes.store.spool import Spool

        return Spool(self.db_path).status()

    def diagnose(self, *, deep: bool = False) -> Diagnosis:
        """How the store and its surroundings are, and what to do about what is wrong; `deep` reads every row."""
        return self._engine.diagnose(deep=deep)

    @classmethod
    def diagnose_file(cls, path: Path, *, deep: bool = False) -> Diagnosis:
        """`diagnose` for a store that may not open. Changes nothing, and raises nothing for what it finds."""
        return diagnose_file(Path(path), deep=deep)

    def backup(self, target: Path | None = None) -> Backup:
        """A verified copy of the store, by default in its own folder of backups."""
        return self._engine.backup(None if target is None else Path(target))

    def restore(self, source: Path) -> None:
        """Put a backup in the place of this store, which is closed for it and opened again."""
        self._while_closed(lambda: restore_file(self.db_path, Path(source)))

    def repair(self) -> Repair:
        """Mend what is broken, saving what can be saved; the store is closed for it and opened again."""
        return self._while_closed(lambda: repair_file(self.db_path))

    def _while_closed(self, work: Callable[[], T]) -> T:
        if self._read_only:
            raise errors.raised(errors.StoreReadOnly, f"{self.db_path} is open read-only")
        self.close()
        try:
            return work()
        finally:
            self._open()

    @classmethod
    def repair_file(cls, path: Path, *, check_only: bool = False, keep_backup: bool = True) -> Repair:
        """`repair` for a store that may be too damaged to open."""
        return repair_file(path, check_only=check_only, keep_backup=keep_backup)

    @classmethod
    def restore_file(cls, path: Path, source: Path) -> None:
        """`restore` for a store that may be damaged or missing."""
        restore_file(path, source)

    def raw(self) -> Any:
        """Plain SQL on the store's own library: the one safe way beside `SessionDB` in this process."""
        if self._raw is None:
            self._raw = self._engine.raw()
        return self._raw

    @property
    def _conn(self) -> Any:
        return self.raw()

    def _execute_write(self, work: Callable[[Any], T]) -> T:
        """Run `work` with a raw connection in one `BEGIN IMMEDIATE` transaction."""
        with self._lock:
            connection = self._engine.raw()
            try:
                connection.execute("BEGIN IMMEDIATE")
                with connection:
                    return work(connection)
            finally:
                connection.close()

    def close(self) -> None:
        """Close the store; safe to repeat."""
        self._engine.close()
        self._raw = None

    def __enter__(self) -> SessionDB:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
