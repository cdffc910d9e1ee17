"""Settings: `config.yaml`, `.env`, the table of settings with defaults and checks, and redaction for display.

Owns reading and changing both files. Imports foundations only: the store, the agent and the surfaces read settings
from here.
"""
