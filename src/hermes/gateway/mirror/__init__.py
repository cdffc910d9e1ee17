"""Files that mirror the store for other programs: `sessions.json` and transcripts.

Owns both kinds of files. They are written after the store. Only `rebuild` and the first start read them.
Imports the store; must not import `inbound`, `commands` or `sessions`.
"""
