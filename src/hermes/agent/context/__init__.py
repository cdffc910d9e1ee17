"""The context window: budget, trimming of tool output, compression and summaries.

Owns the decision what a request leaves out. Imports the turn and models; no tools.
"""
