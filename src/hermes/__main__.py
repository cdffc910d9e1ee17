"""`python -m hermes`: the command of this very interpreter, whatever else the shell would find by that name."""

from __future__ import annotations

import sys

from hermes.cli.start import start

if __name__ == "__main__":
    sys.exit(start())
