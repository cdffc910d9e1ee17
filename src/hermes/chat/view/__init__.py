"""The output of the terminal: answers in Markdown, tool calls, diffs, reasoning, the recap.

This folder owns the part of the screen that is still being updated. It escapes control characters in texts
from models and tools. It imports neither commands nor input.
"""
