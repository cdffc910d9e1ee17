"""Hermes Sessions: every conversation kept, found again and resumed.

The entry point, as in the reference, is `from hermes_state import SessionDB`. The modules here may move;
`docs/architecture.md` describes them.
"""

__version__ = "0.1.0"
