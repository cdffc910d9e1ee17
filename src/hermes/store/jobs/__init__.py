"""Runs of scheduled jobs: which due time was taken by which process, and what became of it.

Owns the table `job_runs`. Knows neither the definition of a job nor its schedule. Imports no other manager.
"""
