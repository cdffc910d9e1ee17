"""Transfer of sessions between stores: export, import, and the merge of two copies of a session.

Owns the JSONL record of a session and the merge plan. Imports every other manager; no other manager imports
this package.
"""
