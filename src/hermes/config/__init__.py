"""Settings: declared once, read from `config.yaml`, `.env` and the environment, checked, and redacted.

Owns reading and changing `config.yaml` and `.env`. Imports foundations only. The store, the agent and the
surfaces read settings from here.
"""
