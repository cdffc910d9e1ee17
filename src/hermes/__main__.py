"""`python -m hermes`: run the command of this interpreter, independent of the `hermes` that the shell would
find."""

from __future__ import annotations

import sys

from hermes.cli.start import start

if __name__ == "__main__":
    sys.exit(start())
