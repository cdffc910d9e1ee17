"""For operators: metrics, health, the status file and the log.

Owns these files and pages. Reads counters and decides nothing. Imports no
chat, session or platform.
"""
