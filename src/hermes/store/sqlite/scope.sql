-- The scope of one person. These views replace the tables of the same name, so that every statement on a scoped
-- connection is limited to the scope. `hermes_scope` holds the owners: place 0 is the person, place 1 the room in which
-- they write. (A function in Python would have to wait for the interpreter's lock in the middle of each statement.)
-- `owner <> ''` lets SQLite use the index of owners. It also excludes the sessions of the local machine.
PRAGMA temp_store = MEMORY;
CREATE TEMP TABLE hermes_scope (place INTEGER PRIMARY KEY, owner TEXT);
INSERT INTO hermes_scope VALUES (0, NULL), (1, NULL);
CREATE TEMP VIEW sessions AS SELECT * FROM main.sessions
    WHERE owner <> '' AND owner IN
        ((SELECT owner FROM hermes_scope WHERE place = 0), (SELECT owner FROM hermes_scope WHERE place = 1));
CREATE TEMP VIEW messages AS SELECT * FROM main.messages m
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id);
CREATE TEMP VIEW carried_context AS SELECT * FROM main.carried_context c
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = c.session_id);
CREATE TEMP VIEW routing AS SELECT * FROM main.routing r
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session_id);
CREATE TEMP VIEW leases AS SELECT * FROM main.leases l
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = l.conversation_id);
CREATE TEMP VIEW model_usage AS SELECT * FROM main.model_usage u
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = u.session_id);
CREATE TEMP VIEW tags AS SELECT * FROM main.tags t
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = t.session_id);
CREATE TEMP VIEW inbox AS SELECT * FROM main.inbox i
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = i.session_id);
CREATE TEMP VIEW outbox AS SELECT * FROM main.outbox o
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = o.session_id);
CREATE TEMP VIEW job_runs AS SELECT * FROM main.job_runs j
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = j.session_id);
CREATE TEMP VIEW blob_refs AS SELECT * FROM main.blob_refs b
    WHERE EXISTS (SELECT 1 FROM messages m WHERE m.id = b.message_id);
CREATE TEMP VIEW blobs AS SELECT * FROM main.blobs b
    WHERE EXISTS (SELECT 1 FROM blob_refs r WHERE r.hash = b.hash);
CREATE TEMP VIEW messages_fts_ranges AS SELECT * FROM main.messages_fts_ranges r
    WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session_id);
-- The titles of sessions in the trash are stored here.
CREATE TEMP VIEW state_meta AS SELECT key, value FROM main.state_meta m
    WHERE key LIKE 'trashed_title:%' AND EXISTS (SELECT 1 FROM sessions s WHERE s.id = substr(m.key, 15));
-- Tables that belong to the installation, not to a person, are empty in a scope.
CREATE TEMP VIEW telegram_dm_topic_mode AS SELECT NULL AS chat_id, NULL AS user_id, NULL AS enabled WHERE 0;
CREATE TEMP VIEW telegram_dm_topic_bindings AS
    SELECT NULL AS chat_id, NULL AS thread_id, NULL AS user_id, NULL AS session_key, NULL AS session_id WHERE 0;
