"""Settings: every one declared once, read from `config.yaml`, `.env` and the environment, checked, and redacted.

Owns reading and changing both files. Imports foundations only: the store, the agent and the surfaces read settings
from here.
"""
