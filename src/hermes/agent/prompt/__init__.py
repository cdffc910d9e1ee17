"""The system prompt and its parts: memory, skills, and the participants of a shared room.

Owns the files in `memories/` and `skills/`. Text written by other people is fenced as data. Imports no model
and no turn.
"""
