"""Files beside an encrypted store: sealed with keys derived from the key of the store.

Owns the sealed format, sealing and opening a whole home, and the list of what stays readable. Imports no engine.
"""
