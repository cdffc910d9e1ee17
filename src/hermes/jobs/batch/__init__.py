"""Batches: many prompts from a file, each answered in a session of its own (source `batch`). Working through a file is
called a run of the batch, or a run for short. It is not a run of a scheduled job.

Owns the prompt files, the folder of a run and the runner. A run continues after a crash: the store has the answers, and
the journal in the run's folder has everything else. Imports the conversation runtime and everything below it, and no
surface.
"""
