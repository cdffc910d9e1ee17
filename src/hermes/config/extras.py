"""The command that adds optional packages (extras) to this installation of Hermes Sessions."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "hermes-sessions"


def format_install(*extras: str) -> str:
    """Return the shell command that adds extras to this installation. The command depends on the program that
    installed `hermes`."""
    wanted = f"'{PACKAGE}[{','.join(extras)}]'"
    if (Path(sys.prefix) / "pipx_metadata.json").exists():
        return f"pipx runpip {PACKAGE} install {wanted}"
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:  # environments that uv creates have no pip
        return f"uv pip install --python {python} {wanted}"
    is_active = sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix
    return f"{'pip' if is_active else f'{python} -m pip'} install {wanted}"
