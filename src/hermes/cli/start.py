"""Where the installed `hermes` starts: whoever presses Ctrl-C while it still loads gets the one line, too."""

from __future__ import annotations

import sys


def start() -> int:
    try:
        from hermes.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("hermes: interrupted\n")
        return 130
    return main()
