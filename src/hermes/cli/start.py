"""The entry point of the installed `hermes`. Ctrl-C prints the one-line message even during the imports."""

from __future__ import annotations

import sys


def start() -> int:
    try:
        from hermes.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("hermes: interrupted\n")
        return 130
    return main()
