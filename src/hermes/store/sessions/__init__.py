"""Sessions and messages: rows, titles, labels, lineage, rewind, lists and attachments.

Owns the rows of the `sessions` and `messages` tables. Imports only the engine interface and its value types.
Chat routing, which moves with a session, is passed in as `families.ChatRouting`.
"""
