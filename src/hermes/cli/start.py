"""The entry point of the installed `hermes`. Even during the imports, Ctrl-C prints one line instead of a
traceback."""

from __future__ import annotations

import sys


def start() -> int:
    try:
        from hermes.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("hermes: interrupted\n")
        return 130
    return main()
