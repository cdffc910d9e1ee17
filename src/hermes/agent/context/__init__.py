"""The context window: budget, trimming of tool output, compression and summaries.

This folder owns the choice of the messages and tool outputs that a request contains. It imports the
transcript, the prompt and models. It imports no tools.
"""
