"""What the terminal shows: answers in Markdown, tool calls, diffs, reasoning, the recap.

Owns the live region. Text from outside is made harmless here.
"""
