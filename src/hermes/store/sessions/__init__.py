"""Sessions and messages: rows, titles, labels, lineage, rewind, lists and attachments.

Owns the rows of the `sessions` and `messages` tables. Imports the seam and its values only. What moves with
a session elsewhere is passed in (`families.ChatRouting`).
"""
