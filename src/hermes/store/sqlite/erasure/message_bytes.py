"""Messages read as bytes.

Other programs may have stored text that is not valid UTF-8, and it must be possible to delete such text.
"""

from __future__ import annotations

from collections.abc import Iterator

from hermes.store.engine import Reader
from hermes.store.retention.fingerprints import MOST_MESSAGES, make_fingerprint
from hermes.store.values import Fingerprint

SESSION = "SELECT started_at FROM sessions WHERE id = ?"
MESSAGES = """SELECT uid, id, role, timestamp, CAST(content AS BLOB) FROM messages WHERE session_id = ?
    ORDER BY id LIMIT ?"""
MESSAGES_WITHOUT_UID = """SELECT NULL, id, role, timestamp, CAST(content AS BLOB) FROM messages WHERE session_id = ?
    ORDER BY id LIMIT ?"""
TEXTS = """SELECT CAST(content AS BLOB), CAST(tool_calls AS BLOB), CAST(reasoning AS BLOB) FROM messages
    WHERE session_id = ?"""


def fingerprint(reader: Reader, session_id: str, *, uids: bool = True) -> Fingerprint:
    """Return the fingerprint of a session. Pass `uids=False` for a store version without the column `uid`."""
    messages = reader.rows(MESSAGES if uids else MESSAGES_WITHOUT_UID, session_id, MOST_MESSAGES)
    return make_fingerprint(session_id, reader.row(SESSION, session_id), messages)


def texts_of(reader: Reader, session_id: str) -> Iterator[str]:
    """Yield content, tool calls and reasoning of a session's messages. Bytes that are not UTF-8 are replaced."""
    for cells in reader.each(TEXTS, session_id):
        yield from ((cell or b"").decode("utf-8", "replace") for cell in cells)
