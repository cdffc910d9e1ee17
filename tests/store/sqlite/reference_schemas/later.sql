-- What a newer program may have left in a database without a version step:
-- columns that later versions are known to add, and columns and a table nobody has heard of.
ALTER TABLE sessions ADD COLUMN cwd TEXT;
ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN of_a_later_version TEXT;
ALTER TABLE messages ADD COLUMN platform_message_id TEXT;
ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1;
ALTER TABLE messages ADD COLUMN of_a_later_version TEXT;

CREATE TABLE gateway_routing (
    scope TEXT NOT NULL,
    session_key TEXT NOT NULL,
    entry_json TEXT NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (scope, session_key)
);
CREATE TABLE things_of_a_later_version (name TEXT PRIMARY KEY, thing BLOB);
