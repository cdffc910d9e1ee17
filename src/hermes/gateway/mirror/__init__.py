"""Files that mirror the store for other programs: `sessions.json` and transcripts.

Written behind the store; nothing reads them back except `rebuild` and the first start.
"""
