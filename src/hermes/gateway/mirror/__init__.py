"""Files that mirror the store for other programs: `sessions.json` and transcripts.

Owns both kinds of files. The files are written from the store, after it. They are read only to rebuild a lost
store, and once to import the routes of an older installation. Must not import `inbound`, `commands` or `sessions`.
"""
