"""Exit codes of the `hermes` command, and the errors that cause them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hermes.errors import HermesError, OutputExists

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130


class Refused(HermesError):
    """The command refuses to run. The message gives the reason; `details` are further lines that may help."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = details


class WrongUsage(HermesError):
    """The command line is wrong in a way that argparse cannot detect."""


@contextmanager
def suggest_force() -> Iterator[None]:
    """If the `with` block fails because an output file exists already, add to the error that `--force` replaces
    the file."""
    try:
        yield
    except OutputExists as problem:
        raise Refused(f"{problem}, or replace it with --force") from None
