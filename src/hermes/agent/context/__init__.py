"""The context window: budget, trimming of tool output, compression and summaries.

This folder decides which messages and which tool outputs a request contains. It imports the transcript, the
prompt and models. It imports no tools.
"""
