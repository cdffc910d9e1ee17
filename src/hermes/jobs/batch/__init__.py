"""Batches: many prompts from a file, each answered in a session of its own (source `batch`).

Owns the prompt files, the folder of a run and the runner. A run continues after a crash: the store has the answers,
and the journal in the folder has everything else. Imports the conversation runtime and everything below it, and no
surface.
"""
