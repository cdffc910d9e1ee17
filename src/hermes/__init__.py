"""Hermes Sessions: a store for the conversations of an agent, and the programs that use it.

The entry point, as in the reference, is `from hermes_state import SessionDB`. The modules here may move;
`docs/architecture.md` describes them.
"""

__version__ = "0.1.0"
