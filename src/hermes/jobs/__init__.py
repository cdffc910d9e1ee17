"""Work without a person: batches of prompts and scheduled jobs.

Owns the runs of such work and their files. Imports the conversation runtime and everything below it, and no surface.
"""
