"""What the terminal shows: answers in Markdown, tool calls, diffs, reasoning, the recap.

Owns the live region, and escapes text from outside. Imports neither commands nor input.
"""
