"""From an answer to a platform: streaming, splitting, delivery from the outbox, retries.

Owns the fate of each delivery.
"""
