"""Exit codes of the command, and the errors that lead to them."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.errors import HermesError

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130


class Refused(HermesError):
    """The command will not do it; the message says why, and `details` what may help, a line each."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = details


class WrongUsage(HermesError):
    """The command was typed wrongly in a way that only running it shows."""
