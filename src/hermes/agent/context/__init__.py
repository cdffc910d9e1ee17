"""The context window: budget, trimming of tool output, compression and summaries.

Owns the decision which messages and tool outputs a request contains. Imports the transcript, the prompt and
models; imports no tools.
"""
