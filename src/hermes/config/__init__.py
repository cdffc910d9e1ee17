"""Settings: declared once, read from `config.yaml`, `.env` and the environment, checked, and redacted for
display.

This folder owns reading and changing `config.yaml` and `.env`. It imports foundations only. The store, the
agent and the surfaces read settings from here.
"""
