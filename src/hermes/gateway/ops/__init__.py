"""For operators: metrics, health, the status file and the log.

Owns these files and pages. Reads counters and changes nothing. Must not import chat, session or platform
modules.
"""
