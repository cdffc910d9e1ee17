"""For operators: metrics, health, the status file and the log.

Reads what others count; decides nothing.
"""
