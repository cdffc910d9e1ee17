"""Where things live, and that they are private.

Paths are resolved when they are used, never at import: a test, a profile or a service may set
`HERMES_HOME` at any time. Folders we make are 0700 and files 0600, whatever the umask says.
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
    """`HERMES_HOME` if set and not blank, else `~/.hermes`."""
    chosen = os.environ.get("HERMES_HOME", "").strip()
    if chosen:
        return _make_absolute(chosen) if chosen[0] == "/" else Path(chosen).expanduser()
    home = Path.home() / ".hermes"
    _warn_about_ignored_profile(home)
    return home


@cache
def _make_absolute(chosen: str) -> Path:
    """The same object each time: it keeps its parts, by which paths are compared."""
    return Path(chosen)


def get_default_hermes_root() -> Path:
    """The folder above all profiles: where `~/.hermes` would be if no profile were chosen."""
    standard = Path.home() / ".hermes"
    home = get_hermes_home()
    if home == standard or standard in home.parents:
        return standard
    return home.parent.parent if home.parent.name == "profiles" else home


def get_default_db_path() -> Path:
    return get_hermes_home() / "state.db"


def _warn_about_ignored_profile(home: Path) -> None:
    """One line per process when a profile is active but `HERMES_HOME` does not say so."""
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
    """Make the folder (and what is missing above it) readable by its owner only."""
    if os.path.isdir(folder):
        return
    missing = [folder, *(parent for parent in folder.parents if not parent.exists())]
    for step in reversed(missing):
        try:
            step.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:  # somebody made it just now: another process of ours, or a stranger
            found = os.stat(step)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
                raise


def is_loose(path: str) -> bool:
    """Whether others than the owner may do anything with this existing file or folder."""
    try:
        return bool(os.stat(path).st_mode & 0o077)
    except OSError:
        return False


def tighten(path: str, mode: int) -> bool:
    """Make something of ours private; True if it was not and now is. What is somebody else's stays as it is."""
    if not is_loose(path):
        return False
    try:
        os.chmod(path, mode)
    except OSError:
        return False
    return True


def create_private_file(path: Path) -> int:
    """A new file, 0600 from its first moment; the open descriptor. Fails if it exists."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def open_private_file(path: Path | str, flags: int, owners: Collection[int] = ()) -> int:
    """Open a file of ours for writing and make it 0600. A symbolic link or somebody else's file is refused.

    `flags` are those of `os.open`. Nothing is truncated before the file was looked at. `owners` are users whose files
    are trusted as well.
    """
    truncates = flags & os.O_TRUNC
    safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a named pipe must not make us wait
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | safe, PRIVATE_FILE)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.EMLINK):
            raise OSError(
                problem.errno, "it is a symbolic link, and those are not followed", str(path)
            ) from None
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
    """The users that own those of the files and folders that exist."""
    owners = set()
    for path in paths:
        try:
            owners.add(os.stat(path).st_uid)
        except OSError:
            continue
    return owners


def _check_owned(descriptor: int, path: Path | str, owners: Collection[int]) -> bool:
    """Refuse what is no regular file of this user or of `owners`; whether it is this user's."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EPERM, "it is not a regular file", str(path))
    user = os.geteuid()
    if found.st_uid == user:
        return True
    if found.st_uid in owners or (user == 0 and found.st_uid in get_owners(Path(path).parent)):
        return False
    raise OSError(errno.EPERM, "it belongs to somebody else", str(path))
