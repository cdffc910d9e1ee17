"""Hermes Sessions: every conversation kept, found again and resumed.

The documented way in is `from hermes_state import SessionDB`. What is inside this package may move;
`docs/architecture.md` is its map.
"""

__version__ = "0.1.0"
