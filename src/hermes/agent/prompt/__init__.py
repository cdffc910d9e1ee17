"""The system prompt and its parts: memory, skills, and the participants of a shared room.

This folder owns the files in `memories/` and `skills/`. Text written by other people is fenced as data. The
folder imports no model and no turn.
"""
