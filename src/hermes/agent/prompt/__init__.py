"""The system prompt and what goes into it: memory, skills, participants of a shared room.

Owns the files in `memories/` and `skills/`. What other people wrote is data in it, fenced.
"""
