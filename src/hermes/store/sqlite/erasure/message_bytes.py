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
    """Return the fingerprint of a session, which is made from its row and its messages and identifies it in a copy of
    the store.

    Pass `uids=False` for a store of a version whose table `messages` has no column `uid`.
    """
    messages = reader.rows(MESSAGES if uids else MESSAGES_WITHOUT_UID, session_id, MOST_MESSAGES)
    return make_fingerprint(session_id, reader.row(SESSION, session_id), messages)


def texts_of(reader: Reader, session_id: str) -> Iterator[str]:
    """Yield the texts of every message of a session: content, tool calls and reasoning. Bytes that are not valid
    UTF-8 are replaced by U+FFFD.
    """
    for cells in reader.each(TEXTS, session_id):
        yield from ((cell or b"").decode("utf-8", "replace") for cell in cells)
