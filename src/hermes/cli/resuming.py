"""What happens with a session that was chosen to go on with: the one place that knows.

The chat is not part of this version, and nothing here pretends that it is: the conversation is shown instead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hermes.cli.output import say
from hermes.text import printable

SHOW = [sys.executable, "-m", "hermes.cli.main", "sessions", "show"]


def resume(session_id: str, store: Path | None) -> int:
    """Become the command that goes on with the session; does not come back."""
    say(
        [
            f"Session: {printable(session_id)}",
            "This version cannot chat yet, so here is the conversation (hermes sessions show).",
        ]
    )
    os.execv(SHOW[0], [*SHOW, session_id, *([] if store is None else ["--store", str(store)])])
