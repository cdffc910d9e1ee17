"""Exit codes of the command, and the errors that lead to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hermes.errors import HermesError, OutputExists

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130


class Refused(HermesError):
    """The command will not do it; the message says why, and `details` what may help, a line each."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = details


class WrongUsage(HermesError):
    """The command was typed wrongly in a way that only running it shows."""


@contextmanager
def suggest_force() -> Iterator[None]:
    """Name the option `--force` where a file that exists is not replaced without it."""
    try:
        yield
    except OutputExists as problem:
        raise Refused(f"{problem}, or replace it with --force") from None
