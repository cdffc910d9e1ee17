"""The output of the terminal: answers in Markdown, tool calls, diffs, reasoning, the recap.

Owns the part of the screen that is still being updated. Escapes control characters in texts from models and
tools. Imports neither commands nor input.
"""
