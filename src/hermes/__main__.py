"""`python -m hermes`: run the `hermes` command with this Python interpreter, regardless of the shell's
PATH."""

from __future__ import annotations

import sys

from hermes.cli.start import start

if __name__ == "__main__":
    sys.exit(start())
