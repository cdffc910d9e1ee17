"""Another program that writes `sessions` and `messages` with plain SQL.

    python tests/store/sqlite/foreign_writer.py DB SECONDS SEED

It uses only the documented columns and the (older) SQLite of the Python interpreter. Foreign keys are off, as
is the default there, so that orphans and cycles of parents appear. The program updates `message_count` itself
for every message that it adds or removes. It prints one line for each committed transaction.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing

BUSY_SECONDS = 30.0
FIRST_TIME = 1_740_000_000.0

TEXTS = (
    "the foreign program was here",
    "déjà vu, naïve façade",
    "端午節龍舟 and 데이터베이스",
    "before\x00after",
    '\x00json:[{"type": "text", "text": "structured привет"}]',
    "",
    None,
)

ADD_MESSAGE = """
INSERT INTO messages (session_id, role, content, tool_calls, tool_name, timestamp, token_count)
VALUES (:session_id, :role, :content, :tool_calls, :tool_name, :timestamp, :token_count)
"""
# If the second of two rows is refused, OR FAIL keeps the first one and OR ABORT keeps none.
ADD_TWO_OR_FAIL = """
INSERT OR FAIL INTO messages (id, session_id, role, content, timestamp)
VALUES (NULL, :session_id, :role, :content, :timestamp), (:id, :session_id, :role, :content, :timestamp)
"""
ADD_TWO_OR_ABORT = ADD_TWO_OR_FAIL.replace("OR FAIL", "OR ABORT")
REPLACE_MESSAGE = """
INSERT OR REPLACE INTO messages (id, session_id, role, content, tool_calls, tool_name, timestamp)
VALUES (:id, :session_id, :role, :content, :tool_calls, :tool_name, :timestamp)
"""
CHANGE_MESSAGE = """
UPDATE messages SET content = :content, tool_name = :tool_name, tool_calls = :tool_calls WHERE id = :id
"""
ADD_SESSION = """
INSERT INTO sessions (id, source, model, started_at, title, parent_session_id, message_count)
VALUES (:id, :source, :model, :started_at, :title, :parent, 0)
"""
REPLACE_SESSION = """
INSERT OR REPLACE INTO sessions (id, source, model, started_at, title, message_count)
SELECT id, :source, :model, :started_at, title, message_count FROM sessions WHERE id = :id
"""
CHANGE_SESSION = """
UPDATE sessions SET title = :title, ended_at = :ended_at, end_reason = :end_reason, model = :model
WHERE id = :id
"""
TAKE_TITLE = """
UPDATE OR REPLACE sessions SET title = (SELECT title FROM sessions WHERE id = :other) WHERE id = :id
"""
COUNT = "UPDATE sessions SET message_count = message_count + :change WHERE id = :id"
SESSION_AT = "SELECT id FROM sessions ORDER BY id LIMIT 1 OFFSET ?"
MESSAGE_FROM = "SELECT id FROM messages WHERE id >= ? ORDER BY id LIMIT 1"

# The conflict clause of a statement also applies to its triggers.
INSERTS = ("INSERT", "INSERT OR FAIL", "INSERT OR ABORT")
UPDATES = ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR FAIL")

Operation = Callable[[sqlite3.Connection, random.Random], str]


def step(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Commit one small transaction and return a line that describes it.

    The result depends only on the database and on `rng`. `conn` must be in autocommit mode
    (`isolation_level=None`).
    """
    conn.execute("BEGIN IMMEDIATE")
    try:
        operations = rng.choices(list(OPERATIONS), weights=list(OPERATIONS.values()), k=rng.randint(1, 4))
        line = "; ".join(operation(conn, rng) for operation in operations)
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise
    return line


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print("usage: foreign_writer.py DB SECONDS SEED", file=sys.stderr)
        return 2
    path, seconds, seed = arguments[0], float(arguments[1]), int(arguments[2])
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as conn:
        while time.monotonic() < deadline:
            print(step(conn, rng), flush=True)
            time.sleep(rng.random() / 200)  # lets other writers proceed
    return 0


# --- operations on messages


def add_messages(conn: sqlite3.Connection, rng: random.Random) -> str:
    sid = _any_session(conn, rng)
    sql = ADD_MESSAGE.replace("INSERT", rng.choice(INSERTS))
    ids = [conn.execute(sql, _message(rng, sid)).lastrowid for _ in range(rng.randint(1, 3))]
    _count(conn, sid, len(ids))
    return f"add messages {ids}"


def add_two_or_refuse(conn: sqlite3.Connection, rng: random.Random) -> str:
    sid, mid = _any_session(conn, rng), _any_message(conn, rng)
    sql, kept = rng.choice(((ADD_TWO_OR_FAIL, 1), (ADD_TWO_OR_ABORT, 0)))
    try:
        conn.execute(sql, _message(rng, sid) | {"id": mid})
    except sqlite3.IntegrityError as error:
        if "messages.id" not in str(error):  # the statement was refused for another reason
            raise
        _count(conn, sid, kept)
        return f"refused message {mid}, kept {kept}"
    raise AssertionError(f"message {mid} was stored twice")


def replace_message(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Replace a message. It stays in its session or moves to another one. No DELETE trigger runs."""
    mid = _any_message(conn, rng)
    owner = _owner(conn, mid)
    sid = rng.choice((owner, _any_session(conn, rng)))
    conn.execute(REPLACE_MESSAGE, _message(rng, sid) | {"id": mid})
    _count(conn, owner, -1)
    _count(conn, sid, 1)
    return f"replace message {mid}"


def put_back_messages(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Write complete rows with all existing columns, like a person who restores rows from a copy and edits
    them."""
    first, text = _any_message(conn, rng), rng.choice(TEXTS)
    conn.execute("DROP TABLE IF EXISTS temp.copied")
    conn.execute(
        "CREATE TEMP TABLE copied AS SELECT * FROM messages WHERE id BETWEEN ? AND ? + 3", (first, first)
    )
    if rng.random() < 0.5:
        conn.execute("UPDATE copied SET content = ?, timestamp = ?", (text, _moment(rng)))
    if rng.random() < 0.5:
        conn.execute("DELETE FROM messages WHERE id IN (SELECT id FROM copied)")
    conn.execute("INSERT OR REPLACE INTO messages SELECT * FROM copied")
    return f"put messages back from {first} on"


def renumber_message(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Give a message the id of another message. This deletes the other message, and no DELETE trigger
    runs."""
    mid, victim = _any_message(conn, rng), _any_message(conn, rng)
    if mid != victim:
        _count(conn, _owner(conn, victim), -1)
        conn.execute("UPDATE OR REPLACE messages SET id = ? WHERE id = ?", (victim, mid))
    return f"renumber message {mid} to {victim}"


def change_message(conn: sqlite3.Connection, rng: random.Random) -> str:
    mid = _any_message(conn, rng)
    conn.execute(CHANGE_MESSAGE.replace("UPDATE", rng.choice(UPDATES)), _message(rng, "") | {"id": mid})
    return f"change message {mid}"


def change_time(conn: sqlite3.Connection, rng: random.Random) -> str:
    mid = _any_message(conn, rng)
    conn.execute("UPDATE messages SET timestamp = ? WHERE id = ?", (_moment(rng), mid))
    return f"change time of message {mid}"


def move_message(conn: sqlite3.Connection, rng: random.Random) -> str:
    mid, sid = _any_message(conn, rng), _any_session(conn, rng)
    _count(conn, _owner(conn, mid), -1)
    conn.execute("UPDATE messages SET session_id = ? WHERE id = ?", (sid, mid))
    _count(conn, sid, 1)
    return f"move message {mid} to {sid}"


def delete_messages(conn: sqlite3.Connection, rng: random.Random) -> str:
    first = _any_message(conn, rng)
    last = first + rng.randrange(3)
    rows = conn.execute("SELECT session_id FROM messages WHERE id BETWEEN ? AND ?", (first, last)).fetchall()
    conn.execute("DELETE FROM messages WHERE id BETWEEN ? AND ?", (first, last))
    for (sid,) in rows:
        _count(conn, sid, -1)
    return f"delete messages {first} to {last}"


# --- operations on sessions


def add_session(conn: sqlite3.Connection, rng: random.Random) -> str:
    return f"add session {_new_session(conn, rng, rng.choice((None, _any_session(conn, rng))))}"


def replace_session(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Replace a session. Columns that the statement does not name get their defaults."""
    sid = _any_session(conn, rng)
    conn.execute(REPLACE_SESSION, _session(rng) | {"id": sid})
    return f"replace session {sid}"


def put_back_session(conn: sqlite3.Connection, rng: random.Random) -> str:
    sid = _any_session(conn, rng)
    conn.execute("DROP TABLE IF EXISTS temp.copied")
    conn.execute("CREATE TEMP TABLE copied AS SELECT * FROM sessions WHERE id = ?", (sid,))
    conn.execute("UPDATE copied SET parent_session_id = ?", (rng.choice((None, _any_session(conn, rng))),))
    conn.execute("INSERT OR REPLACE INTO sessions SELECT * FROM copied")
    return f"put session {sid} back"


def change_session(conn: sqlite3.Connection, rng: random.Random) -> str:
    sid = _any_session(conn, rng)
    ended_at, reason = rng.choice(((None, None), (_moment(rng), rng.choice(("compression", "branched")))))
    sql = CHANGE_SESSION.replace("UPDATE", rng.choice(UPDATES))
    conn.execute(sql, _session(rng) | {"id": sid, "ended_at": ended_at, "end_reason": reason})
    return f"change session {sid}"


def change_parent(conn: sqlite3.Connection, rng: random.Random) -> str:
    sid, parent = _any_session(conn, rng), rng.choice((None, _any_session(conn, rng)))
    conn.execute("UPDATE sessions SET parent_session_id = ? WHERE id = ?", (parent, sid))
    return f"change parent of {sid} to {parent}"


def take_title(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Set a title that may belong to another session. If titles are unique, this deletes the other session,
    and no DELETE trigger runs."""
    sid, other = _any_session(conn, rng), _any_session(conn, rng)
    conn.execute(TAKE_TITLE, {"id": sid, "other": other})
    return f"take title of {other} for {sid}"


def delete_session(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Delete a session, usually with its messages, sometimes without them."""
    sid = _any_session(conn, rng)
    if rng.random() < 0.7:
        conn.execute("DELETE FROM messages WHERE session_id = ?", (sid,))
    conn.execute("DELETE FROM sessions WHERE id = ?", (sid,))
    return f"delete session {sid}"


# The weight of each operation. More rows are added than deleted.
OPERATIONS: dict[Operation, int] = {
    add_messages: 12,
    add_two_or_refuse: 3,
    replace_message: 3,
    put_back_messages: 2,
    renumber_message: 2,
    change_message: 4,
    change_time: 2,
    move_message: 2,
    delete_messages: 3,
    add_session: 4,
    replace_session: 2,
    put_back_session: 1,
    change_session: 3,
    change_parent: 2,
    take_title: 1,
    delete_session: 1,
}


# --- rows


def _any_session(conn: sqlite3.Connection, rng: random.Random) -> str:
    """Return an existing session. Create one if there is none."""
    (count,) = conn.execute("SELECT count(*) FROM sessions").fetchone()
    if count == 0:
        return _new_session(conn, rng, None)
    (sid,) = conn.execute(SESSION_AT, (rng.randrange(count),)).fetchone()
    return str(sid)


def _any_message(conn: sqlite3.Connection, rng: random.Random) -> int:
    """Return an existing message. Create one if there is none."""
    (low, high) = conn.execute("SELECT min(id), max(id) FROM messages").fetchone()
    if low is None:
        add_messages(conn, rng)
        return _any_message(conn, rng)
    (mid,) = conn.execute(MESSAGE_FROM, (rng.randint(low, high),)).fetchone()
    return int(mid)


def _owner(conn: sqlite3.Connection, mid: int) -> str:
    (sid,) = conn.execute("SELECT session_id FROM messages WHERE id = ?", (mid,)).fetchone()
    return str(sid)


def _count(conn: sqlite3.Connection, sid: str, change: int) -> None:
    conn.execute(COUNT, {"id": sid, "change": change})


def _new_session(conn: sqlite3.Connection, rng: random.Random, parent: str | None) -> str:
    sid = f"foreign_{rng.randbytes(8).hex()}"
    conn.execute(
        ADD_SESSION.replace("INSERT", rng.choice(INSERTS)), _session(rng) | {"id": sid, "parent": parent}
    )
    return sid


def _session(rng: random.Random) -> dict[str, object]:
    return {
        "source": rng.choice(("cli", "telegram", "cron")),
        "model": rng.choice((None, "foreign/model")),
        "started_at": _moment(rng),
        "title": rng.choice((None, f"foreign title {rng.randbytes(8).hex()}")),
    }


def _message(rng: random.Random, sid: str) -> dict[str, object]:
    call = {"id": "call_f", "function": {"name": "tool", "arguments": json.dumps({"q": "überall"})}}
    return {
        "session_id": sid,
        "role": rng.choice(("user", "assistant", "tool")),
        "content": rng.choice((*TEXTS, f"foreign word{rng.randrange(1000)}")),
        "tool_calls": rng.choice((None, json.dumps([call]), json.dumps([call], ensure_ascii=False))),
        "tool_name": rng.choice((None, "tool")),
        "timestamp": _moment(rng),
        "token_count": rng.choice((None, 7)),
    }


def _moment(rng: random.Random) -> float:
    return FIRST_TIME + rng.randrange(10_000_000) / 8


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
