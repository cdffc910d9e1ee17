"""Work without a person: batches of prompts (`batch/`) and scheduled jobs (`cron/`).

Owns the definitions and the runs of such work, and their files. Imports the conversation runtime and everything below
it. Imports no surface: surfaces hand in what a job needs of them, such as the delivery to a platform.
"""
