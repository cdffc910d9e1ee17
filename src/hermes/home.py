"""Paths of the home, and private files and folders.

Paths are resolved at each use, never at import, because a test, a profile or a service may set `HERMES_HOME`
at any time. Created folders have mode 0700 and files 0600, independent of the umask.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
LONGEST_PROFILE = 80

_profile_warned = False


def get_hermes_home() -> Path:
    """Return `HERMES_HOME` if it is set and not blank, otherwise `~/.hermes`."""
    chosen = os.environ.get("HERMES_HOME", "").strip()
    if chosen:
        return _make_absolute(chosen) if chosen[0] == "/" else Path(chosen).expanduser()
    home = Path.home() / ".hermes"
    _warn_about_ignored_profile(home)
    return home


@cache
def _make_absolute(chosen: str) -> Path:
    """Return the path `chosen` as a `Path`. The same text always gives the same object. A `Path` caches its
    parts, so reusing the object makes comparisons faster."""
    return Path(chosen)


def get_default_hermes_root() -> Path:
    """Return the folder that contains all profiles. It is the home that is used without a profile."""
    standard = Path.home() / ".hermes"
    home = get_hermes_home()
    if home == standard or standard in home.parents:
        return standard
    return home.parent.parent if home.parent.name == "profiles" else home


def get_default_db_path() -> Path:
    return get_hermes_home() / "state.db"


def _warn_about_ignored_profile(home: Path) -> None:
    """Print a warning once per process if a profile is active but `HERMES_HOME` is not set."""
    global _profile_warned
    if _profile_warned:
        return
    try:
        profile = (home / "active_profile").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return
    if profile and profile != "default":
        from hermes.text import make_printable

        _profile_warned = True
        name = make_printable(profile, width_limit=LONGEST_PROFILE)
        line = f"hermes: profile '{name}' is active but HERMES_HOME is not set; using {home}"
        print(make_printable(line), file=sys.stderr)


def make_private_folder(folder: Path) -> None:
    """Create the folder and its missing parents, readable by the owner only."""
    if os.path.isdir(folder):
        return
    missing = [folder, *(parent for parent in folder.parents if not parent.exists())]
    for step in reversed(missing):
        try:
            step.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:  # another process or another user created it in the meantime
            found = os.stat(step)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
                raise


def is_loose(path: str) -> bool:
    """Return whether other users have any permission on this existing file or folder."""
    try:
        return bool(os.stat(path).st_mode & 0o077)
    except OSError:
        return False


def tighten(path: str, mode: int) -> bool:
    """Make a file or folder private. Return True if its mode was changed. Files of other users are left
    unchanged."""
    if not is_loose(path):
        return False
    try:
        os.chmod(path, mode)
    except OSError:
        return False
    return True


def create_private_file(path: Path) -> int:
    """Create a file with mode 0600 and return its descriptor. Raise FileExistsError if the file exists."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def open_private_file(path: Path | str, flags: int, owners: Collection[int] = ()) -> int:
    """Open a file of this user for writing and set its mode to 0600. Symbolic links and files of other users
    are refused.

    `flags` are those of `os.open`. The file is truncated only after these checks. `owners` are other users
    whose files are accepted too.
    """
    truncates = flags & os.O_TRUNC
    safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # do not block on a named pipe
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | safe, PRIVATE_FILE)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.EMLINK):
            raise OSError(problem.errno, "it is a symbolic link, which is not followed", str(path)) from None
        raise
    try:
        if _check_owned(descriptor, path, owners):
            os.fchmod(descriptor, PRIVATE_FILE)
        if truncates:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def get_owners(*paths: Path) -> set[int]:
    """Return the user ids that own the `paths`. Paths that do not exist are skipped."""
    owners = set()
    for path in paths:
        try:
            owners.add(os.stat(path).st_uid)
        except OSError:
            continue
    return owners


def _check_owned(descriptor: int, path: Path | str, owners: Collection[int]) -> bool:
    """Raise OSError unless the open file is a regular file that belongs to this user or to one of the users
    `owners`. Return whether it belongs to this user."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EPERM, "it is not a regular file", str(path))
    user = os.geteuid()
    if found.st_uid == user:
        return True
    if found.st_uid in owners or (user == 0 and found.st_uid in get_owners(Path(path).parent)):
        return False
    raise OSError(errno.EPERM, "it belongs to another user", str(path))
