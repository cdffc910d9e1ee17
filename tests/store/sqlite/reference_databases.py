"""Creates databases like those of the reference, in its schema versions 1 to 11.

`build` writes a database with plain SQL and the SQLite of the Python interpreter. The database contains the
unusual data that real stores have. `build` returns the contents that must still be there after any migration.
The schemas are the files in `reference_schemas`; their triggers maintain the full-text tables. The same
arguments always result in the same rows.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

Value = str | int | float | bytes | None
Row = dict[str, Value]

SCHEMAS = Path(__file__).with_name("reference_schemas")
VERSIONS = range(1, 12)

PLANTED_WORD = "zanzibarquux"  # in the content of one message
PLANTED_IN_TOOL_CALL = "kilimandjaroquux"  # only in a tool call: indexed from version 11
PLANTED_CJK = "端午節龍舟"  # in the content of one message: for the trigram index
REPLACED_WORD = "draftwordquux"  # in content that was replaced by an update, in a session that was deleted
DELETED_WORD = "prunedwordquux"  # in a session that was deleted

JSON_PREFIX = "\x00json:"
LONG_TEXT_LENGTH = 200 * 1024

_START = 1_735_700_000.25  # January 2025
_FUTURE = 4_102_444_800.5  # January 2100
_STEP = 7.125  # seconds between two messages; exact in binary
_DAY = 86_400.0

_SCRIPTS = (
    "Crème brûlée, naïve façade, smørrebrød",
    "cafe\u0301 in two code points, café in one",
    "Straße, STRASSE, İstanbul, ısı, ﬁne ligatures",
    "Καλημέρα κόσμε, ὀψὲ ἦλθες",
    "Съешь ещё этих мягких французских булок",
    "שלום עולם, מה נשמע?",
    "مرحبا بالعالم، كيف الحال؟",
    "می\u200cخواهم کتاب\u200cها را بخوانم",
    "नमस्ते दुनिया, क्\u200dष",
    "আমার সোনার বাংলা",
    "வணக்கம் உலகம்",
    "สวัสดีชาวโลก วันนี้อากาศดี",
    "ສະບາຍດີຊາວໂລກ",
    "សួស្តី\u200bពិភពលោក",
    "မင်္ဂလာပါ ကမ္ဘာလောက",
    "你好，世界。我們明天討論部署計畫",
    "データベースの移行を手伝ってください",
    "세션 데이터베이스를 옮겨 주세요",
    "\u1112\u1161\u11ab\u1100\u1173\u11af in jamo",
    "𠮷野家 is beyond the basic plane",
    "👩\u200d👩\u200d👧\u200d👦 🇵🇹 ✍🏽 𝐛𝐨𝐥𝐝",
    "left \u202eright\u202c, zero\u200bwidth, \ufeffmark, \ufffc object, \ue000 private",
    "z\u0351\u036b\u0343\u036aa\u0302\u0352l\u0358g\u0321o\u0321",
    "tab\tnew\nline\r\nreturn\x07bell\x1b[31mred\x1b[0m\x7f",
    'it\'s "quoted" -- \'; DROP TABLE messages; %_\\ {"a": [1]} <b>&amp;</b>',
)
_WORDS = ("docker", "build", "deploy", "proxy", "invoice", "garden", "recipe", "train", "python", "backup")


class Cursor(Protocol):
    def fetchall(self) -> Sequence[Any]: ...


class Connection(Protocol):
    """The methods of a database connection that `Expected.check` uses. Rows are read by index only."""

    def execute(self, sql: str, /) -> Cursor: ...


@dataclass(frozen=True)
class Expected:
    """The contents of a database, for comparison after a migration.

    `message_counts` and `checksums` describe the messages of each session id, including messages whose
    session row is missing. `tables` contains the rows of all other tables.
    """

    version: int
    session_columns: tuple[str, ...]
    message_columns: tuple[str, ...]
    session_rows: Mapping[str, Row]
    message_counts: Mapping[str, int]
    checksums: Mapping[str, str]
    tables: Mapping[str, Sequence[Row]]

    @property
    def total_sessions(self) -> int:
        return len(self.session_rows)

    @property
    def total_messages(self) -> int:
        return sum(self.message_counts.values())

    @property
    def orphan_sessions(self) -> frozenset[str]:
        """Return the session ids of messages that have no session row."""
        return frozenset(sid for sid, n in self.message_counts.items() if n and sid not in self.session_rows)

    def check(self, conn: Connection, *, ignore: Collection[str] = ()) -> None:
        """Raise an AssertionError that lists all `differences`, if there are any."""
        found = self.differences(conn, ignore=ignore)
        assert not found, "\n".join(found)

    def differences(self, conn: Connection, *, ignore: Collection[str] = ()) -> list[str]:
        """Return all lost, changed and added data, one line each.

        `ignore` names data that a migration may change: columns such as "sessions.message_count", or whole
        tables. The following are not differences: new columns and tables, rows added to `tables`, session
        rows created for orphan messages, and sources changed to their documented names.
        """
        return [
            *self._session_differences(conn, ignore),
            *self._message_differences(conn),
            *self._table_differences(conn, ignore),
        ]

    def _session_differences(self, conn: Connection, ignore: Collection[str]) -> Iterable[str]:
        columns = [c for c in self.session_columns if f"sessions.{c}" not in ignore]
        actual = {str(row["id"]): row for row in _read(conn, "sessions", columns)}
        for sid, row in self.session_rows.items():
            if sid not in actual:
                yield f"session {sid} is lost"
                continue
            for column in _differ(_named(actual[sid]), _named(row)):
                yield f"session {sid}: {column} is {_short(actual[sid][column])}, was {_short(row[column])}"
        for sid in actual.keys() - self.session_rows.keys() - self.orphan_sessions:
            yield f"session {sid} is new"

    def _message_differences(self, conn: Connection) -> Iterable[str]:
        actual = _by_session(_read(conn, "messages", self.message_columns))
        for sid, count in self.message_counts.items():
            rows = actual.get(sid, [])
            if len(rows) != count:
                yield f"session {sid} has {len(rows)} messages, had {count}"
            elif _checksum(rows) != self.checksums[sid]:
                yield f"session {sid}: messages have changed"
        for sid in actual.keys() - self.message_counts.keys():
            yield f"session {sid} has messages, had none"

    def _table_differences(self, conn: Connection, ignore: Collection[str]) -> Iterable[str]:
        for table, rows in self.tables.items():
            if table in ignore:
                continue
            actual = {_canonical(row) for row in _read(conn, table, list(rows[0]))}
            for row in rows:
                if _canonical(row) not in actual:
                    yield f"{table}: row {_short(row)} is lost or changed"


def build(
    path: Path,
    version: int,
    *,
    sessions: int = 12,
    seed: int = 1,
    fresh: bool = False,
    with_cycles: bool = False,
    with_orphans: bool = False,
    with_duplicate_titles: bool = False,
    with_topics: bool = False,
    with_later_columns: bool = False,
) -> Expected:
    """Write a database of schema version `version` to a new file.

    sessions: the number of sessions; the first twelve are unusual, the others are ordinary chats.
    fresh: version 11 as newly installed (documented column order), not extended by ALTER TABLE.
    with_cycles: two sessions that are each other's parent, and one that is its own parent.
    with_orphans: messages whose session row is missing.
    with_duplicate_titles: two sessions with the same title and no unique index (from version 3).
    with_topics: the Telegram topic tables, with a binding.
    with_later_columns: columns and tables of later versions, filled.
    """
    if version not in VERSIONS:
        raise ValueError(f"no schema version {version}")
    if fresh and version != VERSIONS[-1]:
        raise ValueError("only the last version is known as newly installed")
    if with_duplicate_titles and version < 3:
        raise ValueError(f"version {version} has no titles")
    if path.exists():
        raise FileExistsError(path)

    plans = _sessions(random.Random(seed), sessions)
    telegram = next(plan for plan in plans if plan.row["source"] == "telegram")
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        _run(conn, "v11_fresh" if fresh else f"v{version:02}")
        if with_topics:
            _run(conn, "topics")
        if with_later_columns:
            _run(conn, "later")
        if with_duplicate_titles:
            conn.execute("DROP INDEX IF EXISTS idx_sessions_title_unique")
            plans += _twins()

        writer = _Writer(conn)
        conn.execute("PRAGMA foreign_keys = ON")
        conn.execute("BEGIN IMMEDIATE")
        writer.write(plans)
        writer.write_and_delete(_pruned_session())
        writer.fill_other_tables(telegram)
        conn.execute("COMMIT")

        conn.execute("PRAGMA foreign_keys = OFF")
        conn.execute("BEGIN IMMEDIATE")
        writer.write(_cycles() if with_cycles else [])
        writer.write_messages(_orphans() if with_orphans else [])
        conn.execute("COMMIT")
    return writer.expected(version)


def build_newer(path: Path) -> Expected:
    """Write a database of a future version of the reference: schema version 12, with unknown tables and columns."""
    expected = build(path, 11, with_later_columns=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("UPDATE schema_version SET version = 12")
    return replace(expected, version=12)


def build_marked(path: Path, *, user_version: int, application_id: int) -> Expected:
    """Write a version 11 database with an application id and user version in its header."""
    expected = build(path, 11, fresh=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute(f"PRAGMA user_version = {user_version:d}")
        conn.execute(f"PRAGMA application_id = {application_id:d}")
    return expected


# --- writing


@dataclass
class _Plan:
    """A session that is to be written, with its messages in the order in which they are written."""

    row: Row
    messages: list[Row] = field(default_factory=list)
    miscounted: int = 0

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def started_at(self) -> float:
        return _number(self.row["started_at"])

    def end(self, reason: str, after: float = 1.0) -> float:
        """End the session shortly after its last message and return the end time."""
        ended_at = self.started_at + len(self.messages) * _STEP + after
        self.row |= {"ended_at": ended_at, "end_reason": reason}
        return ended_at


class _Writer:
    """Writes rows and records what the database contains afterwards."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn
        self.columns = {table: _columns(conn, table) for table in _tables(conn)}
        self.rows: dict[str, list[Row]] = {}
        self.last_message_id = 0

    def expected(self, version: int) -> Expected:
        sessions = {str(row["id"]): row for row in self.rows["sessions"]}
        messages: dict[str, list[Row]] = {sid: [] for sid in sessions}
        messages |= _by_session(self.rows["messages"])
        return Expected(
            version=version,
            session_columns=self.columns["sessions"],
            message_columns=self.columns["messages"],
            session_rows=sessions,
            message_counts={sid: len(rows) for sid, rows in messages.items()},
            checksums={sid: _checksum(rows) for sid, rows in messages.items()},
            tables={t: tuple(rows) for t, rows in self.rows.items() if t not in ("sessions", "messages")},
        )

    def write(self, plans: Sequence[_Plan]) -> None:
        """Write sessions, then their messages in order of time."""
        for plan in plans:
            plan.row |= {
                "message_count": len(plan.messages) + plan.miscounted,
                "tool_call_count": sum(map(_tool_calls, plan.messages)),
                "cwd": f"projects/{plan.id[-2:]}",
                "archived": int(plan.row["end_reason"] == "session_reset"),
                "of_a_later_version": f"später {plan.id}",
            }
            self.insert("sessions", plan.row)
        timed = [
            (plan.started_at + n * _STEP, plan.id, message)
            for plan in plans
            for n, message in enumerate(plan.messages)
        ]
        timed.sort(key=lambda entry: entry[0])
        self.write_messages(
            {**message, "session_id": sid, "timestamp": message.get("timestamp", written_at)}
            for written_at, sid, message in timed
        )

    def write_messages(self, messages: Iterable[Row]) -> None:
        """Write messages. Every seventh message is first written with other content and then updated."""
        for message in messages:
            self.last_message_id += 1
            row: Row = message | {
                "id": self.last_message_id,
                "platform_message_id": f"p{self.last_message_id}",
                "active": self.last_message_id % 2,
                "of_a_later_version": "später",
            }
            redone = self.last_message_id % 7 == 0
            self.insert("messages", row, draft={"content": f"{REPLACED_WORD}!"} if redone else {})

    def write_and_delete(self, plan: _Plan) -> None:
        """Write messages and delete them again. Only a gap in the message ids remains."""
        before = {table: list(rows) for table, rows in self.rows.items()}
        self.write([plan])
        self.conn.execute("DELETE FROM messages WHERE session_id = ?", (plan.id,))
        self.conn.execute("DELETE FROM sessions WHERE id = ?", (plan.id,))
        self.rows = before

    def fill_other_tables(self, telegram: _Plan) -> None:
        for table, row in _other_rows(telegram.id):
            if table in self.columns:
                self.insert(table, row)
        if "telegram_dm_topic_mode" in self.columns:
            self.insert("state_meta", {"key": "telegram_dm_topic_schema_version", "value": "2"})

    def insert(self, table: str, row: Row, draft: Row | None = None) -> None:
        """Insert a row, with only the columns that the table has. If `draft` is given, its values are
        inserted first and then updated to those of `row`."""
        row = {column: row.get(column) for column in self.columns[table]}
        marks = ", ".join("?" * len(row))
        self.conn.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list((row | (draft or {})).values())
        )
        for column in draft or {}:
            self.conn.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (row[column], row["id"]))
        self.rows.setdefault(table, []).append(row)


def _run(conn: sqlite3.Connection, schema: str) -> None:
    conn.executescript((SCHEMAS / f"{schema}.sql").read_text(encoding="utf-8"))


def _tool_calls(message: Row) -> int:
    calls = message.get("tool_calls")
    if calls is None or message["role"] == "tool":
        return 0
    try:
        parsed = json.loads(str(calls))
    except ValueError:
        return 1
    return len(parsed) if isinstance(parsed, list) else 1


# --- the unusual sessions


def _sessions(rng: random.Random, count: int) -> list[_Plan]:
    plans = [*_compression_chain(rng), *_branch(rng), *_single_awkward_sessions(rng)]
    if count < len(plans):
        raise ValueError(f"at least {len(plans)} sessions")
    return plans + [_ordinary_session(rng, n) for n in range(count - len(plans))]


def _compression_chain(rng: random.Random) -> list[_Plan]:
    """Return a root, two continuations, and a subagent of the first continuation."""
    root = _session(rng, 0, title="Fix Docker Build", model_config={"temperature": 0.2})
    root.messages = [
        _system("You are helpful."),
        *_exchange(f"Why does the build fail? {PLANTED_WORD}", "A layer is missing."),
        *_tool_exchange("terminal", {"command": f"echo {PLANTED_IN_TOOL_CALL}"}, "ok"),
        *_exchange("Try again.", "Done."),
        *_exchange("Try again.", "Done, again."),  # the same text in two separate messages
    ]
    ended_at = root.end("compression")

    first = _session(rng, 0, title="Fix Docker Build #2", parent=root, started_at=ended_at)
    first.messages = [
        _user("[Context summary] The build failed on a missing layer."),
        *root.messages[-4:],  # copied by compression
        *_exchange("And the cache?", "The cache is stale."),
        *_tool_exchange("delegate_task", {"goal": "clear the cache"}, "cleared"),
    ]
    subagent = _session(rng, 0, parent=first, started_at=first.started_at + 5 * _STEP)
    subagent.messages = [*_exchange("Clear the cache.", "Cleared.")]
    subagent.end("cli_close")
    ended_at = first.end("compression", after=30.0)

    second = _session(
        rng, 0, title="Fix Docker Build #3", parent=first, started_at=ended_at + 0.5, miscounted=-2
    )
    second.messages = [
        *first.messages[-4:],
        *_exchange("Thanks! " + rng.choice(_SCRIPTS), "You are welcome."),
    ]
    return [root, first, second, subagent]


def _branch(rng: random.Random) -> list[_Plan]:
    parent = _session(rng, 1, title="旅行の計画")
    parent.messages = [*_exchange("京都に行きたい", "いつですか"), *_exchange("五月", "はい")]
    ended_at = parent.end("branched")
    child = _session(rng, 1, title="旅行の計画 #2", parent=parent, started_at=ended_at)
    child.messages = [*parent.messages, *_exchange("奈良は？", "近いです")]
    return [parent, child]


def _single_awkward_sessions(rng: random.Random) -> list[_Plan]:
    telegram = _session(rng, 2, source="telegram", user_id="10020030", title="100%_done", sid_digits=8)
    telegram.messages = [
        {"role": "session_meta", "content": None},
        *(_user(text) for text in _SCRIPTS),
        _assistant(f"我們談到{PLANTED_CJK}的事"),
        _user("<memory-context>likes tea</memory-context>\nWhat do I like?"),
    ]
    telegram.end("session_reset")
    telegram.row |= {"handoff_state": "failed", "handoff_platform": "telegram"}
    telegram.row |= {"handoff_error": "no home channel — aborted"}

    ghost = _session(rng, 3, source="tui", miscounted=3)
    ghost.end("new_session")

    cron = _session(rng, 4, source="cron", sid="cron_nightly_20250105_040000")
    cron.messages = [
        {**_user("Run the report."), "timestamp": _FUTURE},
        {**_assistant("Reported."), "timestamp": _FUTURE + 1},
    ]
    cron.row["ended_at"], cron.row["end_reason"] = _FUTURE + 2, "cron_complete"

    acp = _session(
        rng,
        5,
        source="acp",
        sid="3f0c2b1e-8a74-4f0e-9d55-0d6f5a1b2c3d",
        title="Ünïcode 🦊 and ‘quotes’",
        model_config={"cwd": "~/проект", "provider": "openai", "base_url": None},
    )
    acp.row["system_prompt"] = "before\x00after"
    acp.messages = _awkward_contents()

    clock = _session(rng, 6, source="api_server", sid="api-0123456789abcdef", title="clocks")
    at = clock.started_at
    stored_times = (at, at, at, at + 50, at + 20, at - 3 * _DAY, at + 50, 0.0, -1.5)
    clock.messages = [
        {**_user(f"message number {n}"), "timestamp": moment} for n, moment in enumerate(stored_times)
    ]

    empty_strings = _session(rng, 7, source="discord", user_id="")
    empty_strings.row |= {"model": "", "system_prompt": "", "billing_mode": "", "end_reason": ""}
    empty_strings.messages = [
        {"role": "user", "content": "", "tool_name": "", "tool_calls": "", "tool_call_id": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "", "finish_reason": "", "reasoning_content": ""},
        {"role": "tool", "content": None, "tool_name": None, "tool_call_id": None},
        {"role": "unknown", "content": " \n\t "},
        {"role": "", "content": "a message of nobody"},
    ]
    return [telegram, ghost, cron, acp, clock, empty_strings]


def _awkward_contents() -> list[Row]:
    parts: list[dict[str, object]] = [
        {"type": "text", "text": "Was ist auf dem Bild? 写真"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    return [
        _user(JSON_PREFIX + json.dumps(parts)),
        _user(JSON_PREFIX + json.dumps(parts, ensure_ascii=False)),
        _user(JSON_PREFIX + json.dumps({"type": "text", "text": "one part, no list"})),
        _user(JSON_PREFIX + '[{"type": "text", "text": "cut o'),  # invalid JSON
        _user(JSON_PREFIX),
        _user('[{"type": "text", "text": "only looks structured"}]'),
        _user("before\x00after"),
        _user("\x00"),
        _user("ends in\x00\x00"),
        *_tool_exchange("read_file", {"path": "отчёт.txt", "мера": "½"}, "ñandú", ascii_only=True),
        *_tool_exchange("read_file", {"path": "отчёт.txt", "мера": "½"}, "ñandú", ascii_only=False),
        _assistant(None, tool_calls='[{"id": "call_cut", "function": {"na'),
        _assistant(None, tool_calls='{"id": "call_dict", "function": {"name": "todo"}}'),
        _assistant(None, tool_calls="null"),
        _assistant(
            "I thought about it.",
            finish_reason="stop",
            token_count=150,
            reasoning="Let me think… 考えています",
            reasoning_content="",
            reasoning_details=json.dumps([{"type": "reasoning.text", "text": "schön"}]),
            codex_reasoning_items=json.dumps([{"id": "rs_1", "encrypted_content": "gAAA="}]),
            codex_message_items=json.dumps([{"id": "msg_1", "phase": "final"}]),
        ),
        _assistant("Half a thought.", reasoning_details="[{", codex_message_items="{"),
        _assistant(("long text äöü 長い文 " * LONG_TEXT_LENGTH)[:LONG_TEXT_LENGTH]),
        _user("x" * LONG_TEXT_LENGTH),  # one word
    ]


def _ordinary_session(rng: random.Random, n: int) -> _Plan:
    plan = _session(
        rng,
        10 + n,
        source=rng.choice(("cli", "telegram", "discord", "slack", "whatsapp")),
        title=rng.choice((None, f"{rng.choice(_WORDS)} and {rng.choice(_WORDS)}, part {n}")),
    )
    for _ in range(rng.randint(1, 6)):
        question = " ".join(rng.choices(_WORDS, k=rng.randint(2, 12)))
        plan.messages += _exchange(question + "?", rng.choice(_SCRIPTS))
        if rng.random() < 0.3:
            arguments = {"query": rng.choice(_SCRIPTS)}
            result = " ".join(rng.choices(_WORDS, k=30))
            plan.messages += _tool_exchange("search", arguments, result, ascii_only=rng.random() < 0.5)
    if rng.random() < 0.6:
        plan.end(rng.choice(("cli_close", "session_reset", "session_switch", "resumed_other")))
    return plan


def _twins() -> list[_Plan]:
    twins = [_session(random.Random(n), 8, title="twins") for n in range(2)]
    for twin in twins:
        twin.messages = [*_exchange(f"I am twin {twin.id}", "Hello.")]
    return twins


def _pruned_session() -> _Plan:
    pruned = _session(random.Random(0), 9, sid="20250109_000000_dead00")
    pruned.messages = [*_exchange(DELETED_WORD, DELETED_WORD)]
    return pruned


def _cycles() -> list[_Plan]:
    names = {"cycle_a": "cycle_b", "cycle_b": "cycle_a", "cycle_self": "cycle_self"}
    plans = []
    for n, (sid, parent) in enumerate(names.items()):
        plan = _session(random.Random(n), 9, sid=sid)
        plan.messages = [*_exchange(f"I am {sid}", "Round and round.")]
        plan.row["parent_session_id"] = parent
        # this session ended so early that, by its times, every child appears to be a continuation
        plan.row |= {"ended_at": 1.0, "end_reason": "compression"}
        plans.append(plan)
    return plans


def _orphans() -> list[Row]:
    return [
        {**_user(f"lost message {n} of {sid}"), "session_id": sid, "timestamp": _START + n}
        for n in range(3)
        for sid in ("20241231_235959_0ff0ff", "missing: ünknown")
    ]


def _other_rows(telegram_id: str) -> list[tuple[str, Row]]:
    """Return rows for all other tables that may exist, each with the name of its table."""
    chat = "10020030"
    key = f"agent:main:telegram:dm:{chat}"
    meta: Row = {
        "last_auto_prune": "1735700000.25",
        "ghost_session_prune_v1": "1",
        "orphaned_compression_finalize_v1": "not a number",
        "ключ": "значение\x00",
        "empty": "",
        "null": None,
    }
    return [
        *(("state_meta", {"key": name, "value": value}) for name, value in meta.items()),
        (
            "telegram_dm_topic_mode",
            {"chat_id": chat, "user_id": chat, "enabled": 1, "has_topics_enabled": 1},
        ),
        (
            "telegram_dm_topic_bindings",
            {
                "chat_id": chat,
                "thread_id": "17",
                "user_id": chat,
                "session_key": f"{key}:17",
                "session_id": telegram_id,
                "managed_mode": "auto",
            },
        ),
        (
            "gateway_routing",
            {
                "scope": "sessions",
                "session_key": key,
                "entry_json": json.dumps({"session_key": key, "session_id": telegram_id}),
                "updated_at": _START + _DAY,
            },
        ),
        ("things_of_a_later_version", {"name": "unknown", "thing": b"\x00\xff\xfe not text"}),
    ]


# --- rows


def _session(
    rng: random.Random,
    day: int,
    *,
    sid: str | None = None,
    sid_digits: int = 6,
    source: str = "cli",
    user_id: str | None = None,
    title: str | None = None,
    parent: _Plan | None = None,
    started_at: float | None = None,
    model_config: Mapping[str, object] | None = None,
    miscounted: int = 0,
) -> _Plan:
    started = _START + day * _DAY if started_at is None else started_at
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(started))
    row: Row = {
        "id": sid or f"{stamp}_{rng.randbytes(4).hex()[:sid_digits]}",
        "source": source,
        "user_id": user_id,
        "model": rng.choice((None, "anthropic/claude-sonnet-4.6", "local/qwen3:8b")),
        "model_config": json.dumps(model_config) if model_config else None,
        "system_prompt": rng.choice((None, f"You help with {rng.choice(_WORDS)}. {_SCRIPTS[0]}")),
        "parent_session_id": parent.id if parent else None,
        "started_at": started,
        "ended_at": None,
        "end_reason": None,
        "input_tokens": rng.randrange(100_000),
        "output_tokens": rng.randrange(10_000),
        "title": title,
        "cache_read_tokens": rng.randrange(10_000),
        "cache_write_tokens": rng.randrange(10_000),
        "reasoning_tokens": rng.choice((0, 2**40)),
        "billing_provider": rng.choice((None, "openrouter")),
        "billing_base_url": rng.choice((None, "https://openrouter.ai/api/v1")),
        "billing_mode": None,
        "estimated_cost_usd": rng.choice((None, 0.0, rng.random())),
        "actual_cost_usd": rng.choice((None, rng.random() / 3)),
        "cost_status": rng.choice((None, "estimated")),
        "cost_source": rng.choice((None, "catalog")),
        "pricing_version": rng.choice((None, "2025-01")),
        "api_call_count": rng.randrange(20),
    }
    return _Plan(row, miscounted=miscounted)


def _system(content: str) -> Row:
    return {"role": "system", "content": content}


def _user(content: str) -> Row:
    return {"role": "user", "content": content}


def _assistant(content: str | None, **columns: Value) -> Row:
    return {"role": "assistant", "content": content, **columns}


def _exchange(question: str, answer: str) -> tuple[Row, Row]:
    return _user(question), _assistant(answer, finish_reason="stop", token_count=len(answer))


def _tool_exchange(
    name: str, arguments: Mapping[str, object], result: str, *, ascii_only: bool = True
) -> tuple[Row, Row]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=ascii_only)}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    return (
        _assistant(
            None,
            tool_calls=json.dumps(calls, ensure_ascii=ascii_only),
            finish_reason="tool_calls",
            reasoning=f"I need {name}.",
        ),
        {"role": "tool", "content": result, "tool_call_id": "call_1", "tool_name": name},
    )


# --- comparing


def _tables(conn: sqlite3.Connection) -> list[str]:
    """Return the tables to fill: all except SQLite's own tables and the full-text tables."""
    names = [str(row[0]) for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [name for name in names if not name.startswith(("sqlite_", "messages_fts", "schema_version"))]


def _columns(conn: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(str(row[1]) for row in conn.execute(f"PRAGMA table_info({table})"))


def _read(conn: Connection, table: str, columns: Sequence[str]) -> list[Row]:
    rows = conn.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1").fetchall()
    return [{name: row[n] for n, name in enumerate(columns)} for row in rows]


def _by_session(messages: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in messages:
        grouped.setdefault(str(row["session_id"]), []).append(row)
    return grouped


def _checksum(rows: Iterable[Row]) -> str:
    digest = blake2b(digest_size=16)
    for row in rows:
        digest.update(_canonical(row).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _canonical(row: Row) -> str:
    """Return the values of a row in order as text. Types are included, so that 1 differs from 1.0."""
    return repr(list(row.values()))


def _named(row: Row) -> Row:
    return row | {"source": "api-server"} if row["source"] == "api_server" else row


def _differ(one: Row, other: Row) -> list[str]:
    return [column for column in one if repr(one[column]) != repr(other[column])]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _number(value: Value) -> float:
    assert isinstance(value, float)
    return value
