"""What happens with a session that was chosen to go on with: the one place that knows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hermes.cli.io.output import say
from hermes.text import make_printable

CHAT = [sys.executable, "-m", "hermes.cli.main", "chat"]


def resume(session_id: str, store: Path | None) -> int:
    """Become the chat, in this session; does not come back."""
    say([f"Resuming session: {make_printable(session_id)}"])
    elsewhere = [] if store is None else ["--store", str(store)]
    os.execv(CHAT[0], [*CHAT, f"--resume={session_id}", *elsewhere])
