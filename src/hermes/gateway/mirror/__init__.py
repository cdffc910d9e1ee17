"""Files that mirror the store for other programs: `sessions.json` and transcripts.

Owns both kinds of files. The store is always written first. The files are read only by `rebuild` and at the
first start. Imports the store; must not import `inbound`, `commands` or `sessions`.
"""
