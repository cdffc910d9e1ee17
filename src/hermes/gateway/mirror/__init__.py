"""Files that mirror the store for other programs: `sessions.json` and transcripts.

Owns both kinds of files. Written behind the store; read back only by `rebuild` and by the first start. Imports the
store; nothing of `inbound`, `commands` or `sessions`.
"""
