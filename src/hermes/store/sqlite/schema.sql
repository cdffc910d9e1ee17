-- The schema of a new store. The first four tables are documented. Their names and documented columns never change,
-- because people, scripts and other programs read and write them with plain SQL. "-- ours" marks additional columns and
-- tables. All statements parse in SQLite 3.31, so that an old library can read, write, vacuum and check the file.
-- The full-text tables need a newer SQLite and are defined in index.sql.

CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    -- ours: the family. `relation` to the parent is compression, branch, reset or delegate; NULL if it is unknown.
    -- `root_id` is the first session of the conversation, which consists of the sessions joined by compression.
    relation TEXT,
    root_id TEXT,
    -- ours: derived from the messages by the method that writes them, recomputed after writes of other programs.
    last_active REAL,
    last_person_at REAL,
    preview TEXT,
    -- ours: derived, on the first session of a conversation only. `listed` is 1 if lists show a row for it.
    conversation_active REAL,
    listed INTEGER,
    -- ours: the kind of the session, its owner and its origin.
    kind TEXT NOT NULL DEFAULT 'chat',
    title_by TEXT,
    owner TEXT NOT NULL DEFAULT '',
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    display_name TEXT,
    origin_json TEXT,
    workspace TEXT,
    cwd TEXT,
    git_branch TEXT,
    process TEXT,
    -- ours: actions of the user.
    pinned_at REAL,
    archived INTEGER NOT NULL DEFAULT 0,
    trashed_at REAL,
    rewind_count INTEGER NOT NULL DEFAULT 0,
    -- ours: the fencing token. An append under a lease with an older epoch is refused.
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);

CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    -- ours: an identity across machines (uuid7 as 32 hexadecimal digits; NULL if another program wrote the row),
    -- the format of `content` (text or json), whether a rewind removed the row from the conversation, and the number
    -- of bytes removed from a large body.
    uid TEXT,
    content_kind TEXT,
    active INTEGER NOT NULL DEFAULT 1,
    rewound_at REAL,
    thinned_bytes INTEGER,
    platform_message_id TEXT
);

CREATE TABLE IF NOT EXISTS state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);

CREATE INDEX IF NOT EXISTS idx_sessions_source ON sessions(source);
CREATE INDEX IF NOT EXISTS idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX IF NOT EXISTS idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX IF NOT EXISTS idx_messages_session ON messages(session_id, timestamp);
-- The documented name, with a different rule: a title is unique per owner. All local sessions have the same owner.
CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique ON sessions(title, owner) WHERE title IS NOT NULL;

-- ours: message order, and lists that read only the rows that they show.
CREATE INDEX IF NOT EXISTS idx_messages_order ON messages(session_id);
CREATE INDEX IF NOT EXISTS idx_messages_platform ON messages(session_id, platform_message_id)
    WHERE platform_message_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_continuations ON sessions(parent_session_id) WHERE relation = 'compression';
CREATE INDEX IF NOT EXISTS idx_sessions_title_folded ON sessions(lower(title)) WHERE title IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_handoff ON sessions(started_at, id) WHERE handoff_state = 'pending';
CREATE INDEX IF NOT EXISTS idx_sessions_root ON sessions(root_id);
CREATE INDEX IF NOT EXISTS idx_sessions_owner ON sessions(owner) WHERE owner <> '';
-- The sessions that were created for a chat, for a chat without a route.
CREATE INDEX IF NOT EXISTS idx_sessions_key ON sessions(session_key) WHERE session_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_chat
    ON sessions(source, chat_type, coalesce(chat_id, ''), coalesce(thread_id, '')) WHERE chat_type IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_listed_active
    ON sessions(conversation_active DESC, started_at DESC, id DESC) WHERE listed = 1;
CREATE INDEX IF NOT EXISTS idx_sessions_listed_started ON sessions(started_at DESC, id DESC) WHERE listed = 1;
CREATE INDEX IF NOT EXISTS idx_sessions_listed_source_active
    ON sessions(source, conversation_active DESC, started_at DESC, id DESC) WHERE listed = 1;
CREATE INDEX IF NOT EXISTS idx_sessions_listed_source_started
    ON sessions(source, started_at DESC, id DESC) WHERE listed = 1;
-- Counts conversations of each kind without reading their rows.
CREATE INDEX IF NOT EXISTS idx_sessions_counted ON sessions(kind, archived, source)
    WHERE root_id = id AND trashed_at IS NULL;
CREATE INDEX IF NOT EXISTS idx_sessions_last_active ON sessions(last_active DESC, started_at DESC, id DESC);

-- ours: earlier messages in the context of a continuation or branch, as ordered ranges of ids. Nothing is copied.
CREATE TABLE IF NOT EXISTS carried_context (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    first_message_id INTEGER NOT NULL,
    last_message_id INTEGER NOT NULL,
    PRIMARY KEY (session_id, position)
);

-- ours: the session of each chat. One row per chat, thread and participant.
CREATE TABLE IF NOT EXISTS routing (
    session_key TEXT PRIMARY KEY,
    platform TEXT NOT NULL,
    chat_type TEXT NOT NULL,
    chat_id TEXT NOT NULL DEFAULT '',
    thread_id TEXT NOT NULL DEFAULT '',
    participant TEXT NOT NULL DEFAULT '',
    session_id TEXT NOT NULL REFERENCES sessions(id),
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    entry_json TEXT NOT NULL DEFAULT '{}',
    UNIQUE (platform, chat_type, chat_id, thread_id, participant)
);
CREATE INDEX IF NOT EXISTS idx_routing_session ON routing(session_id);

-- ours: the process that works in a conversation. `epoch` only grows; it is copied to the session row as fencing token.
CREATE TABLE IF NOT EXISTS leases (
    conversation_id TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    holder_host TEXT,
    holder_pid INTEGER,
    holder_start TEXT,
    holder_surface TEXT,
    since REAL,
    expires_at REAL
);

-- ours: one row per model call. The documented counters of `sessions` are sums of these rows.
CREATE TABLE IF NOT EXISTS model_usage (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    at REAL NOT NULL,
    model TEXT,
    provider TEXT,
    base_url TEXT,
    purpose TEXT NOT NULL DEFAULT 'main',
    input_tokens INTEGER,
    output_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    reasoning_tokens INTEGER,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT
);
CREATE INDEX IF NOT EXISTS idx_model_usage_session ON model_usage(session_id);

-- ours: large attachments, stored once by their hash, and referenced by messages.
CREATE TABLE IF NOT EXISTS blobs (
    hash BLOB PRIMARY KEY,
    media_type TEXT,
    size INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    created_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS blob_refs (
    message_id INTEGER NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
    hash BLOB NOT NULL REFERENCES blobs(hash),
    PRIMARY KEY (message_id, hash)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_blob_refs_hash ON blob_refs(hash);

CREATE TABLE IF NOT EXISTS tags (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    PRIMARY KEY (session_id, tag)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_tags_tag ON tags(tag);

-- ours: messages accepted from a platform but not processed yet, and messages for a platform not confirmed yet.
CREATE TABLE IF NOT EXISTS inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key TEXT NOT NULL,
    session_id TEXT,
    platform TEXT NOT NULL,
    platform_message_id TEXT,
    event_json TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued',
    epoch INTEGER,
    received_at REAL NOT NULL,
    changed_at REAL NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_inbox_once ON inbox(platform, session_key, platform_message_id)
    WHERE platform_message_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_inbox_waiting ON inbox(session_key, id) WHERE state <> 'done';
CREATE TABLE IF NOT EXISTS outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key TEXT NOT NULL,
    session_id TEXT,
    platform TEXT NOT NULL,
    idempotency_key TEXT NOT NULL UNIQUE,
    payload_json TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued',
    epoch INTEGER,
    platform_message_id TEXT,
    error TEXT,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_outbox_waiting ON outbox(session_key, id) WHERE state <> 'sent';

-- ours: one row per attempt of a scheduled job. The key lets one process take a due time, the index lets a job have one
-- run at a time. `expires_at` is extended while the run works; a run whose process is gone was killed.
CREATE TABLE IF NOT EXISTS job_runs (
    job_id TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    cause TEXT NOT NULL,
    state TEXT NOT NULL,
    session_id TEXT,
    message_id INTEGER,
    detail TEXT,
    delivery TEXT,
    retry_at REAL,
    holder_host TEXT,
    holder_pid INTEGER,
    holder_start TEXT,
    expires_at REAL,
    started_at REAL NOT NULL,
    ended_at REAL,
    PRIMARY KEY (job_id, due_at, attempt)
);
CREATE UNIQUE INDEX IF NOT EXISTS idx_job_runs_running ON job_runs(job_id) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS idx_job_runs_retry ON job_runs(retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS idx_job_runs_session ON job_runs(session_id) WHERE session_id IS NOT NULL;

-- ours: changes by other programs. Triggers only record the id; the next list or search recomputes from the rows.
-- NOT EXISTS is used instead of OR IGNORE, because the conflict clause of the outer statement would override OR IGNORE.
CREATE TABLE IF NOT EXISTS changed_messages (message_id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS changed_sessions (session_id TEXT PRIMARY KEY) WITHOUT ROWID;

-- The recording is defined once, behind an empty view: each statement in the body of a trigger on `messages` makes every
-- append slower, even if it is not executed. The session that has the message now is recorded too, because an OR REPLACE
-- is about to displace its row without a DELETE trigger. With `sure`, the message is always recorded for the index.
-- Otherwise it is recorded only if its id was used before, because the index finds higher ids by itself.
CREATE VIEW IF NOT EXISTS hermes_changed (message_id, session_id, sure) AS SELECT NULL, NULL, NULL WHERE 0;
-- A uid that is stored as bytes comes from a copy in layout 1, or from a program that still writes that layout.
CREATE TRIGGER IF NOT EXISTS hermes_change_noted INSTEAD OF INSERT ON hermes_changed BEGIN
    INSERT INTO changed_sessions SELECT m.session_id FROM messages m WHERE m.id = new.message_id
        AND NOT EXISTS (SELECT 1 FROM changed_sessions c WHERE c.session_id = m.session_id);
    INSERT INTO changed_sessions SELECT new.session_id WHERE new.session_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM changed_sessions WHERE session_id = new.session_id);
    INSERT INTO changed_messages SELECT new.message_id WHERE (new.sure OR new.message_id <= max(
            coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), new.message_id),
            coalesce((SELECT max(id) FROM messages), 0)))
        AND NOT EXISTS (SELECT 1 FROM changed_messages WHERE message_id = new.message_id);
    UPDATE messages SET uid = lower(hex(uid)) WHERE id = new.message_id AND typeof(uid) = 'blob';
END;

-- A trigger whose text changes gets a new name, because an opener checks triggers by name only.
-- Inserts of this program have a uid and update their session in the same transaction. They let SQLite choose the id,
-- which a BEFORE trigger sees as -1. An insert with an id restores a row from a copy, with its uid, or replaces a row.
-- Its attachments may lack their references, which the indexer restores.
CREATE TRIGGER IF NOT EXISTS hermes_message_placed BEFORE INSERT ON messages WHEN new.id <> -1 BEGIN
    INSERT INTO hermes_changed VALUES (new.id, new.session_id, new.content_kind = 'blobs');
END;
CREATE TRIGGER IF NOT EXISTS hermes_message_arrived AFTER INSERT ON messages WHEN typeof(new.uid) <> 'text' BEGIN
    INSERT INTO hermes_changed VALUES (new.id, new.session_id, 1);
END;
CREATE TRIGGER IF NOT EXISTS hermes_uid_written AFTER UPDATE OF uid ON messages WHEN typeof(new.uid) = 'blob' BEGIN
    UPDATE messages SET uid = lower(hex(uid)) WHERE id = new.id;
END;
CREATE TRIGGER IF NOT EXISTS hermes_message_renumbered BEFORE UPDATE OF id ON messages WHEN new.id <> old.id BEGIN
    INSERT INTO hermes_changed VALUES (new.id, NULL, 1);
END;
-- These triggers fire for many rows at once, so they record changes directly: the view would be slower.
CREATE TRIGGER IF NOT EXISTS hermes_message_updated
AFTER UPDATE OF id, session_id, role, content, tool_name, tool_calls, timestamp ON messages BEGIN
    INSERT INTO changed_messages SELECT old.id
        WHERE NOT EXISTS (SELECT 1 FROM changed_messages WHERE message_id = old.id);
    INSERT INTO changed_messages SELECT new.id
        WHERE NOT EXISTS (SELECT 1 FROM changed_messages WHERE message_id = new.id);
    INSERT INTO changed_sessions SELECT old.session_id
        WHERE NOT EXISTS (SELECT 1 FROM changed_sessions WHERE session_id = old.session_id);
    INSERT INTO changed_sessions SELECT new.session_id
        WHERE NOT EXISTS (SELECT 1 FROM changed_sessions WHERE session_id = new.session_id);
END;
CREATE TRIGGER IF NOT EXISTS hermes_message_deleted AFTER DELETE ON messages BEGIN
    INSERT INTO changed_messages SELECT old.id
        WHERE NOT EXISTS (SELECT 1 FROM changed_messages WHERE message_id = old.id);
    INSERT INTO changed_sessions SELECT old.session_id
        WHERE NOT EXISTS (SELECT 1 FROM changed_sessions WHERE session_id = old.session_id);
END;

-- A session that another program created has no root yet. A session that was restored from a copy has one, with an
-- activity, a preview or a place in its family that a new session of this program would not have.
CREATE TRIGGER IF NOT EXISTS hermes_session_placed AFTER INSERT ON sessions
WHEN new.root_id IS NULL OR new.preview IS NOT NULL OR new.last_person_at IS NOT NULL
    OR new.last_active IS NOT new.started_at
    OR new.conversation_active IS NOT CASE WHEN new.root_id = new.id THEN new.started_at END
    OR CASE WHEN new.parent_session_id IS NULL
        THEN new.root_id <> new.id OR new.listed IS NOT 1 OR new.relation IS NOT NULL
        ELSE new.relation IS NULL OR new.listed IS NOT (new.relation IN ('branch', 'reset'))
            OR new.root_id IS NOT (SELECT CASE new.relation WHEN 'compression' THEN p.root_id ELSE new.id END
                FROM sessions p WHERE p.id = new.parent_session_id) END
    OR EXISTS (SELECT 1 FROM messages m WHERE m.session_id = new.id)
    OR EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = new.id) BEGIN
    INSERT INTO hermes_changed VALUES (NULL, new.id, 0);
END;
-- Sessions that an INSERT OR REPLACE displaces by id or title. Inserts of this program check too, and displace none.
CREATE TRIGGER IF NOT EXISTS hermes_session_replaced BEFORE INSERT ON sessions
WHEN new.root_id IS NULL OR new.title IS NOT NULL
    OR EXISTS (SELECT 1 FROM sessions s WHERE s.id = new.id AND s.root_id <> new.root_id) BEGIN
    INSERT INTO hermes_changed SELECT NULL, s.root_id, 0 FROM sessions s WHERE s.id = new.id
        UNION ALL SELECT NULL, s.id, 0 FROM sessions s WHERE s.title = new.title AND s.owner = new.owner
        UNION ALL SELECT NULL, s.root_id, 0 FROM sessions s WHERE s.title = new.title AND s.owner = new.owner;
END;
-- The same for an UPDATE OR REPLACE that takes the title of another session and thereby displaces it.
CREATE TRIGGER IF NOT EXISTS hermes_session_renamed BEFORE UPDATE OF title, owner ON sessions
WHEN new.title IS NOT NULL AND EXISTS
    (SELECT 1 FROM sessions s WHERE s.title = new.title AND s.owner = new.owner AND s.id <> old.id) BEGIN
    INSERT INTO hermes_changed
        SELECT NULL, s.id, 0 FROM sessions s WHERE s.title = new.title AND s.owner = new.owner AND s.id <> old.id
        UNION ALL SELECT NULL, s.root_id, 0 FROM sessions s
            WHERE s.title = new.title AND s.owner = new.owner AND s.id <> old.id;
END;
CREATE TRIGGER IF NOT EXISTS hermes_session_changed
AFTER UPDATE OF id, source, parent_session_id, started_at, ended_at, end_reason ON sessions BEGIN
    INSERT INTO hermes_changed VALUES (NULL, old.id, 0), (NULL, new.id, 0);
END;
CREATE TRIGGER IF NOT EXISTS hermes_session_removed AFTER DELETE ON sessions BEGIN
    INSERT INTO hermes_changed VALUES (NULL, old.id, 0), (NULL, old.root_id, 0);
END;
