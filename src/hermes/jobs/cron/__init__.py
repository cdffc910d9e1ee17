"""Scheduled jobs: schedules, job files, the ticker that starts due runs, and the runner of one run.

Owns `<home>/cron/`: one JSON file for each job. What has run is recorded in the store (`hermes.store.jobs`). Imports no
surface. `cronsim` is imported only when a cron expression is used.
"""
