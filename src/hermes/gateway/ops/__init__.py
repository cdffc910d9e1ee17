"""For operators: metrics, health, the status file and the log.

Owns the status file, the log and the HTTP pages for operators. Reads counters and changes nothing else. Must
not import chat, session or platform modules.
"""
