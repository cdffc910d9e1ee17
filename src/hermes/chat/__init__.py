"""The conversation in a terminal.

This folder owns the loop at the prompt and the one-shot question. It imports the conversation, the agent and
the store handles. No other surface imports it.
"""

from __future__ import annotations


def is_installed() -> bool:
    """Return whether the libraries of the prompt and the screen (prompt_toolkit and rich) are installed. A
    one-shot question does not need them."""
    from importlib.util import find_spec

    return all(map(find_spec, ("rich", "prompt_toolkit")))
