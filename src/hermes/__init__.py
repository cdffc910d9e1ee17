"""Hermes Sessions: every conversation kept, found again and resumed.

The documented entry point is `from hermes_state import SessionDB`. The modules of this package may move;
`docs/architecture.md` describes them.
"""

__version__ = "0.1.0"
