"""Handoffs of a session to a platform. The states are NULL, pending, running, then completed or failed.

Every step is one conditional UPDATE. If two programs try the same step, exactly one succeeds.
"""

from __future__ import annotations

from typing import Any

from hermes import errors
from hermes.logs import get_logger
from hermes.store.arguments import require_text
from hermes.store.engine import Engine
from hermes.text import replace_surrogates

log = get_logger(__name__)

MAX_ERROR_LENGTH = 500

REQUEST = """UPDATE sessions SET handoff_state = 'pending', handoff_platform = ?, handoff_error = NULL
    WHERE id = ? AND (handoff_state IS NULL OR handoff_state IN ('completed', 'failed')) AND trashed_at IS NULL"""
CLAIM = """UPDATE sessions SET handoff_state = 'running' WHERE id = ? AND handoff_state = 'pending'
    AND trashed_at IS NULL"""
COMPLETE = """UPDATE sessions SET handoff_state = 'completed', handoff_error = NULL
    WHERE id = ? AND handoff_state = 'running'"""
# A pending handoff can fail too: the requester may give up before a gateway claims the handoff.
FAIL = """UPDATE sessions SET handoff_state = 'failed', handoff_error = ?
    WHERE id = ? AND handoff_state IN ('pending', 'running')"""
STATE = (
    "SELECT handoff_state, handoff_platform, handoff_error FROM sessions WHERE id = ? AND trashed_at IS NULL"
)
PENDING = """SELECT * FROM sessions WHERE handoff_state = 'pending' AND trashed_at IS NULL
    ORDER BY started_at, id"""


class Handoffs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def request(self, session_id: str, platform: str) -> bool:
        """Request the handoff of a session to a platform. Return False if the session does not exist, or if a
        handoff of it is in progress."""
        name = require_text("platform", platform)
        return self._engine.write(lambda writer: writer.run(REQUEST, name, session_id)) > 0

    def claim(self, session_id: str) -> bool:
        """Claim the pending handoff of a session. If several callers try this, it returns True for exactly one
        of them."""
        # Not repeatable: after an uncertain commit another process may have claimed the handoff.
        return self._engine.write(lambda writer: writer.run(CLAIM, session_id), repeatable=False) > 0

    def complete(self, session_id: str) -> bool:
        return self._engine.write(lambda writer: writer.run(COMPLETE, session_id)) > 0

    def fail(self, session_id: str, error: str) -> bool:
        reason = replace_surrogates(str(error))[:MAX_ERROR_LENGTH]
        return self._engine.write(lambda writer: writer.run(FAIL, reason, session_id)) > 0

    def get_state(self, session_id: str) -> dict[str, Any] | None:
        """Return the state, the platform and the error of the handoff of a session, as a dict. Return None if
        the session does not exist. If the store cannot be read, log the error and return None."""
        try:
            with self._engine.read() as reader:
                row = reader.row(STATE, session_id)
        except errors.StoreError as problem:
            log.warning("the handoff state of %s cannot be read: %s", session_id, problem)
            return None
        return None if row is None else {"state": row[0], "platform": row[1], "error": row[2]}

    def list_pending(self) -> list[dict[str, Any]]:
        """Return the sessions with a pending handoff, in order of their start. If the store cannot be read,
        log the error and return an empty list."""
        try:
            with self._engine.read(settled=True) as reader:
                return reader.dicts(PENDING)
        except errors.StoreError as problem:
            log.warning("pending handoffs cannot be read: %s", problem)
            return []
