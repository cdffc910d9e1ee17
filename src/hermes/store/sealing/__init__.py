"""Files beside an encrypted store: sealed with keys derived from the key of the store.

Owns the sealed format, the sealing and opening of a whole home, and the list of the files that stay readable.
Imports no engine.
"""
