"""The agent: one turn of a conversation with a model, and what it may do.

Owns the turn, the transcript under a lease, titles and the memory flush. Imports the handles and recall; knows no
surface.
"""
