"""Packages that must not be in the environment of the tests: installed once, apart, and kept for the next run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


def installed_apart(name: str, *wanted: str, otherwise: str) -> Path:
    """A folder with what pip was asked for; the test is skipped, saying `otherwise`, where that cannot be had."""
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    place = Path(tempfile.gettempdir()) / f"hermes-tests-{os.getuid()}" / f"{name}-{version}"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    if place.parent.stat().st_uid != os.getuid():
        pytest.skip(f"{otherwise}: the folder for it belongs to somebody else")
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want it at once
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
