"""The context window: budget, trimming of tool output, compression and summaries.

Owns the decision what a request leaves out. Imports the transcript, the prompt and models; no tools.
"""
