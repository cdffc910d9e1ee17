"""The system prompt and what goes into it: memory, skills, participants of a shared room.

Owns the files in `memories/` and `skills/`. Text that other people wrote is fenced as data. Imports no model and no
turn.
"""
