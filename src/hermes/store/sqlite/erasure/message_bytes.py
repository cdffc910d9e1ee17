"""Messages read as bytes: what another program wrote need not be UTF-8, and can be deleted all the same."""

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
    """Of a session as it is now; without `uids` in a store of a version that has none."""
    messages = reader.rows(MESSAGES if uids else MESSAGES_WITHOUT_UID, session_id, MOST_MESSAGES)
    return make_fingerprint(session_id, reader.row(SESSION, session_id), messages)


def texts_of(reader: Reader, session_id: str) -> Iterator[str]:
    """What the messages of a session say, and call, and think; a byte that is not UTF-8 is a replacement character."""
    for cells in reader.each(TEXTS, session_id):
        yield from ((cell or b"").decode("utf-8", "replace") for cell in cells)
