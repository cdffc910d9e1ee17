"""Installs packages that must not be in the environment of the tests.

Each is installed once into a separate folder, which is kept for the next run.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


def installed_apart(name: str, *wanted: str, otherwise: str) -> Path:
    """Return a folder that contains the requested packages. If they cannot be installed, skip the test with
    the reason `otherwise`."""
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    place = Path(tempfile.gettempdir()) / f"hermes-tests-{os.getuid()}" / f"{name}-{version}"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    if place.parent.stat().st_uid != os.getuid():
        pytest.skip(f"{otherwise}: the folder for it belongs to somebody else")
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes can request the folder at the same time
        if not (place / ".ready").exists():
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--upgrade",
            ]
            done = subprocess.run([*pip, "--target", str(place), *wanted], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"{otherwise}: {name} could not be installed")
            (place / ".ready").touch()
    return place
