"""Scheduled jobs, with real stores, real processes and a model over HTTP."""
