"""Sessions between stores: export, import, and the merge of two copies of a conversation.

Owns the JSONL record of a session and the merge plan. Imports every other manager; no manager imports it.
"""
