"""The output of the terminal: answers in Markdown, tool calls, diffs, reasoning, the recap.

Owns the part of the screen that is still being updated, and escapes control characters in texts of models and
tools. Imports neither commands nor input.
"""
